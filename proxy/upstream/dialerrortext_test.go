package upstream

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTextIsOneShortPrintableLine(t *testing.T) {
	for said, want := range map[string]string{
		"connect: connection refused": "connect: connection refused",
		"a\nb":                        "a b",
		"x\x1b[2J\r\u009b\x00y":       "x?[2J???y",
		"no \xff text":                "no ? text",
		"\u202eright to left":         "?right to left",
	} {
		if got := (&DialError{Err: errors.New(said)}).Text(); got != want {
			t.Errorf("%q becomes %q", said, got)
		}
	}
	for _, unit := range []string{"a", "é", "\xff", "世"} {
		got := (&DialError{Err: errors.New(strings.Repeat(unit, 10000))}).Text()
		if len(got) > maxText || !utf8.ValidString(got) || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes of %q", len(got), unit)
		}
	}
}
