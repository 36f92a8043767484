package top

import (
	"strings"
	"unicode"
)

// piece is a rune or an escape sequence (ECMA-48 SGR) of a line.
type piece struct {
	text    string
	columns int
}

// pieces splits a line. Its only escape sequences are our own colours.
func pieces(line string) []piece {
	var all []piece
	for len(line) > 0 {
		if strings.HasPrefix(line, "\x1b[") {
			end := strings.IndexByte(line, 'm') + 1
			all = append(all, piece{line[:end], 0})
			line = line[end:]
			continue
		}
		for i, r := range line {
			if i > 0 {
				break
			}
			n := len(string(r))
			all = append(all, piece{line[:n], runeColumns(r)})
			line = line[n:]
		}
	}
	return all
}

// columnsOf returns how many columns of a terminal a text without tabs takes.
func columnsOf(text string) int {
	sum := 0
	for _, p := range pieces(text) {
		sum += p.columns
	}
	return sum
}

// wide lists the blocks whose characters take two columns (approximately Unicode Standard
// Annex 11).
var wide = []struct{ from, to rune }{
	{0x1100, 0x115f}, {0x2e80, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff}, {0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6},
	{0x1f300, 0x1faff}, {0x20000, 0x3fffd},
}

func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	for _, block := range wide {
		if block.from <= r && r <= block.to {
			return 2
		}
	}
	return 1
}

// clip cuts a line to a number of columns, 0 for no limit, and appends ellipsis if it did.
// It ends colours.
func clip(line string, columns int, ellipsis string) string {
	if columns <= 0 || columnsOf(line) <= columns {
		return line
	}
	var b strings.Builder
	left := columns - columnsOf(ellipsis)
	for _, p := range pieces(line) {
		if p.columns > left {
			break
		}
		left -= p.columns
		b.WriteString(p.text)
	}
	if colourOf(b.String()) != "" {
		b.WriteString(noColour)
	}
	return b.String() + ellipsis
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
