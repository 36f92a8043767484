//go:build linux

package docs

import (
	"regexp"
	"strings"
	"testing"
)

var (
	comment  = regexp.MustCompile(`(?m)\s+#.*$`)
	variable = regexp.MustCompile(`^([A-Z_]+=\S+ +)+`)
	chosen   = regexp.MustCompile(`-(?:run|bench) ('[^']+'|\S+)`)
	packages = regexp.MustCompile(`\./\S+`)
)

// parsed turns a command that measures for minutes into one that only has it read: the target
// exists, the program takes all these flags, the tests are there.
func parsed(t *testing.T, line string) string {
	t.Helper()
	line = variable.ReplaceAllString(strings.TrimSpace(line), "")
	switch {
	case line == "make":
		return "make -n help"
	case strings.HasPrefix(line, "make "):
		return "make -n " + strings.TrimPrefix(line, "make ")
	case strings.HasPrefix(line, "go run ./bench/"):
		return line + " --help"
	case strings.HasPrefix(line, "go test "):
		names := "'.*'"
		for _, c := range chosen.FindAllStringSubmatch(line, -1) {
			if c[1] != "'^$'" {
				names = c[1]
			}
		}
		return "go test -list " + names + " " + strings.Join(packages.FindAllString(line, -1), " ") + " | grep -E '^(Test|Benchmark|Fuzz)'"
	}
	t.Errorf("%q measures nothing that this test knows", line)
	return "false"
}

// measurement runs what is left of a block of measurements.
func measurement(t *testing.T, b block) {
	t.Helper()
	text := strings.ReplaceAll(b.text, "\\\n", " ")
	for line := range strings.Lines(comment.ReplaceAllString(text, "")) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if out, err := session(t, true, parsed(t, line)); err != nil {
			t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
		}
	}
}
