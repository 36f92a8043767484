package docs

import (
	"strings"
	"testing"
)

func TestAParagraphFitsAndStaysOne(t *testing.T) {
	for _, tc := range []struct{ first, text, want string }{
		{"- ", "short", "- short\n"},
		{"", "", "\n"},
		{"- ", strings.Repeat("a", 97) + " b c", "- " + strings.Repeat("a", 97) + "\n  b c\n"},
		{"- ", strings.Repeat("é", 96) + " b c", "- " + strings.Repeat("é", 96) + " b\n  c\n"},
		{"", strings.Repeat("a", 99) + " - b", strings.Repeat("a", 99) + " -\nb\n"},
		{"", strings.Repeat("a", 99) + " 1. b", strings.Repeat("a", 99) + " 1.\nb\n"},
		{"", strings.Repeat("a", 99) + " #2 b", strings.Repeat("a", 99) + " #2\nb\n"},
	} {
		var b strings.Builder
		if paragraph(&b, tc.first, tc.text); b.String() != tc.want {
			t.Errorf("%q, want %q", b.String(), tc.want)
		}
	}
}

// A line longer than the page is one word, or ends with a word that must not begin a line.
func TestGeneratedReferencesFitInALine(t *testing.T) {
	for name, page := range map[string]string{"settings": Settings(), "metrics": Metrics()} {
		for line := range strings.Lines(page) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns+10 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}
