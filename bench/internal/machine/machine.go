// Package machine says what a figure was measured on: without the machine, the
// commit and the versions it means nothing.
package machine

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Describe names system, kernel, processor and cores.
func Describe() string {
	text := fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH)
	if b, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		text += " " + strings.TrimSpace(string(b))
	}
	return text + ", " + processor() + fmt.Sprintf("%d cores", runtime.NumCPU())
}

func processor() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value) + ", "
		}
	}
	return ""
}

// Commit is what the running program was built from; "unknown" without
// -buildvcs=true.
func Commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return revision + changed
}

// Version is the first line of what a program says that it is; its name when
// it cannot be asked.
func Version(program string, args ...string) string {
	out, err := exec.Command(program, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		return program
	}
	return line
}
