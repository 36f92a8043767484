package top

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// colours are the only escape sequences in a line (ECMA-48 SGR).
var colours = regexp.MustCompile("\x1b\\[[0-9]*m")

// columnsOf returns how many columns of a terminal a text takes: one for each character,
// see printable.
func columnsOf(text string) int { return utf8.RuneCountInString(colours.ReplaceAllString(text, "")) }

// clip cuts a line to a number of columns, 0 for no limit, and appends ellipsis if it did.
// It ends colours.
func clip(line string, columns int, ellipsis string) string {
	if columns <= 0 || columnsOf(line) <= columns {
		return line
	}
	kept, room := "", columns-columnsOf(ellipsis)
	for line != "" && room > 0 {
		n := 0
		if at := colours.FindStringIndex(line); at != nil && at[0] == 0 {
			n = at[1]
		} else {
			_, n = utf8.DecodeRuneInString(line)
			room--
		}
		kept, line = kept+line[:n], line[n:]
	}
	if colourOf(kept) != "" {
		kept += noColour
	}
	return kept + ellipsis
}

const noColour = "\x1b[0m"

// colourOf returns the escape sequence in effect at the end of a text, "" for none.
func colourOf(text string) string {
	at := strings.LastIndex(text, "\x1b[")
	if at < 0 || strings.HasPrefix(text[at:], noColour) {
		return ""
	}
	return text[at : at+strings.IndexByte(text[at:], 'm')+1]
}

// wrap breaks a line at spaces so that no part takes more columns, 0 for no limit. It cuts
// a word that is too long.
func wrap(line string, columns int) []string {
	if columns <= 0 || columnsOf(line) <= columns {
		return []string{line}
	}
	var parts []string
	part := ""
	for word := range strings.SplitSeq(line, " ") {
		switch {
		case part == "":
			part = word
		case columnsOf(part)+1+columnsOf(word) <= columns:
			part += " " + word
		default:
			parts = append(parts, part)
			part = "  " + word // indented, to mark the continuation
		}
	}
	parts = append(parts, part)
	colour := "" // continues from part to part
	for i, p := range parts {
		p = colour + p
		if colour = colourOf(p); colour != "" {
			p += noColour
		}
		parts[i] = clip(p, columns, "~")
	}
	return parts
}
