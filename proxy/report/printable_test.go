package report

import (
	"strings"
	"testing"
)

func TestNothingThatAClientSendsSteersTheTerminal(t *testing.T) {
	for said, want := range map[string]string{
		"/plain?x":                    "/plain?x",
		"/a\x1b[2J":                   "/a?[2J",
		"/c1\u009b2J\u007f":           "/c1?2J?",
		"/\xff\xfe":                   "/??",
		"/\u202ebidi":                 "/?bidi",
		"/café":                       "/café",
		"/" + strings.Repeat("a", 40): "/" + strings.Repeat("a", 29) + "...",
	} {
		before := strings.Clone(said)
		if got := string(printable([]byte(said), 30)); got != want || said != before {
			t.Errorf("%q becomes %q, expected %q", said, got, want)
		}
	}
	text := []byte("/a\x1b")
	printable(text, 30)
	if string(text) != "/a\x1b" {
		t.Error("the request itself was changed")
	}
}
