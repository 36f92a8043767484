package printable

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNothingSteersTheTerminal(t *testing.T) {
	for said, want := range map[string]string{
		"":                                "",
		"/plain?x":                        "/plain?x",
		"/a\x1b[2J":                       "/a?[2J",
		"/c1\u009b2J\u007f":               "/c1?2J?",
		"/\xff\xfe":                       "/??",
		"/\ufffd":                         "/?",
		"/\u202ebidi":                     "/?bidi",
		"a\nb\r\x00\tc":                   "a b???c",
		"/café 世":                         "/café 世",
		"/" + strings.Repeat("a", 29):     "/" + strings.Repeat("a", 29),
		"/" + strings.Repeat("a", 30):     "/" + strings.Repeat("a", 26) + "…",
		"/\x1b" + strings.Repeat("é", 20): "/?" + strings.Repeat("é", 12) + "?…",
	} {
		text := []byte(said)
		if got, same := Text(said, 30), string(Bytes(text, 30)); got != want || same != want {
			t.Errorf("%q becomes %q and %q, expected %q", said, got, same, want)
		}
		if string(text) != said {
			t.Errorf("the text itself was changed to %q", text)
		}
	}
}

func TestLongTextIsCut(t *testing.T) {
	for _, unit := range []string{"a", "é", "\xff", "世"} {
		if got := Text(strings.Repeat(unit, 10000), 300); len(got) > 300 || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes of %q", len(got), unit)
		}
	}
}

func TestSafeBytesAreNotCopied(t *testing.T) {
	text := []byte("/orders/7?page=café")
	if n := testing.AllocsPerRun(100, func() { Bytes(text, 100) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
