package text

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/needs"
)

// Escape sequences go to terminals only, and not to those that do not want them.
func TestColourIsForTerminalsAndAsked(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // the master of a new one
	if err != nil {
		needs.Missing(t, "the machine makes no terminals (mount /dev/pts): "+err.Error())
	}
	defer terminal.Close() //nolint:errcheck // only a test
	for name, tt := range map[string]struct {
		env  []string
		want string
	}{
		"terminal":    {[]string{"TERM=xterm"}, "\x1b[31mx\x1b[0m"},
		"NO_COLOR":    {[]string{"TERM=xterm", "NO_COLOR=1"}, "x"},
		"empty":       {[]string{"TERM=xterm", "NO_COLOR="}, "\x1b[31mx\x1b[0m"}, // no-color.org: only when not empty
		"dumb":        {[]string{"TERM=dumb"}, "x"},
		"no terminal": {nil, "x"},
	} {
		getenv := func(name string) string {
			for _, entry := range tt.env {
				if n, value, _ := strings.Cut(entry, "="); n == name {
					return value
				}
			}
			return ""
		}
		p := PaintFor(terminal, getenv)
		if name == "no terminal" {
			p = PaintFor(&bytes.Buffer{}, getenv)
		}
		if got := p.Red("x"); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "one": "one", "one two": "one two", "one two three": "one two|three",
		"  one   two ": "one two", "fourfivesix a": "fourfivesix|a", "éé éé éé": "éé éé|éé",
	} {
		if got := strings.Join(Wrap(text, 7), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestAPercentSignStaysWithItsNumber(t *testing.T) {
	if got := strings.Join(Wrap("adds 100 % load", 8), "|"); got != "adds|100 %|load" {
		t.Error(got)
	}
}
