// Package printable makes text from clients and upstreams safe to show on a terminal, on a page
// and in logs.
package printable

import (
	"bytes"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ellipsis ends a text that was cut off.
const ellipsis = "…"

// Text returns text in one line of at most max bytes. Control characters, bidirectional marks,
// invalid UTF-8 and whatever else cannot be printed become '?', and a newline becomes a space.
func Text(text string, max int) string {
	if len(text) > max {
		return strings.Map(safe, text[:max-len(ellipsis)]) + ellipsis
	}
	return strings.Map(safe, text)
}

// Bytes is like Text for a slice, which it does not change. It returns text itself if it is safe.
func Bytes(text []byte, max int) []byte {
	if len(text) <= max && !bytes.ContainsFunc(text, func(r rune) bool { return safe(r) != r }) {
		return text
	}
	return []byte(Text(string(text), max))
}

func safe(r rune) rune {
	switch {
	case r == '\n':
		return ' '
	case r == utf8.RuneError, !unicode.IsPrint(r):
		return '?'
	}
	return r
}
