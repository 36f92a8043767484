// Package buildinfo identifies the build of a program.
package buildinfo

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Build identifies a build.
type Build struct{ Version, Revision string }

// Of describes the running program. version is what the linker set, or "dev". revision is what the
// linker set, or "": then it is what the Go tool says, "unknown" for a build outside a repository, and
// it ends in "+" if files were changed.
func Of(version, revision string) Build {
	b := Build{Version: version, Revision: "unknown"}
	if revision != "" {
		b.Revision = revision
	} else if info, ok := debug.ReadBuildInfo(); ok {
		b.add(info)
	}
	return b
}

// add adds what the Go tool says. The module has a checksum if it was downloaded, as by go install
// .../cmd/retryproxy@latest, and then its version is that of the program.
func (b *Build) add(info *debug.BuildInfo) {
	if info.Main.Sum != "" {
		b.Version = info.Main.Version
	}
	changed := ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			b.Revision = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	b.Revision += changed
}

// Line returns what `version` prints.
func (b Build) Line(program string) string {
	return fmt.Sprintf("%s %s (%s, %s, %s/%s)", program, b.Version, b.Revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
