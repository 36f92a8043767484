//go:build linux

// Package docs runs every command of README.md and of the pages below docs/, as a reader would
// paste it. Which block is run how is the table in table_test.go; a block that is not in it fails
// the test.
//
// A page runs in a network namespace of its own, so port 8080 is free, and nothing leaves the
// machine. This takes root or a system with user namespaces, and bash, curl and ip.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../../.."

// block is a fenced block of commands.
type block struct {
	language string // sh or console
	text     string
}

var fenced = regexp.MustCompile("(?ms)^ *```(sh|console)\n(.*?)^ *```$")

// blocks are the blocks of commands of a page.
func blocks(t *testing.T, path string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range fenced.FindAllStringSubmatch(string(text), -1) {
		all = append(all, block{found[1], found[2]})
	}
	return all
}

// step is one command of a console block, and the output that the page shows.
type step struct{ command, output string }

// steps are the commands of a console block. A command begins with "$ ", and goes on while lines
// end with a backslash.
func (b block) steps() (all []step) {
	continued := false
	for line := range strings.Lines(b.text) {
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case is:
			all = append(all, step{command: command})
		case continued:
			all[len(all)-1].command += line
			is = true
		case len(all) > 0:
			all[len(all)-1].output += line
		}
		continued = is && strings.HasSuffix(strings.TrimSpace(line), "\\")
	}
	return all
}

// shows reports whether got is what the page shows. [...] stands for anything, also within a line.
func shows(page, got string) bool {
	parts := strings.Split(strings.TrimSpace(page), "[...]")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("(?s)^" + strings.Join(parts, ".*?") + "$").MatchString(strings.TrimSpace(got))
}

func TestShownOutputIsCompared(t *testing.T) {
	for _, c := range []struct {
		page, got string
		want      bool
	}{
		{"a\nb\n", "a\nb", true},
		{"a\nb\n", "a\nc", false},
		{"a [...] s\nb", "a 12 s\nb\n", true},
		{"a\n[...]\nb", "a\n1\n2\nb", true},
		{"a\n[...]\nb", "a\n1\n2\nb\nc", false},
		{"a.c", "abc", false},
	} {
		if shows(c.page, c.got) != c.want {
			t.Errorf("%q shows %q: expected %v", c.page, c.got, c.want)
		}
	}
}

func TestStepsOfAConsoleBlock(t *testing.T) {
	got := block{text: "$ one \\\n  more\nout\n$ two\n"}.steps()
	if len(got) != 2 || got[0] != (step{"one \\\n  more\n", "out\n"}) || got[1] != (step{"two\n", ""}) {
		t.Errorf("%q", got)
	}
}
