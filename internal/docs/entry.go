package docs

import (
	"regexp"
	"strings"
)

// columns is the width of the text of a page.
const columns = 100

// startsBlock matches a word that Markdown takes for a list, a heading or a quotation at the beginning
// of a line.
var startsBlock = regexp.MustCompile(`^([-+*#>=|]|[0-9]+[.)]$)`)

// paragraph writes a text in lines of at most columns. first comes before the first line, and the
// others are indented as far.
func paragraph(b *strings.Builder, first, text string) {
	indent := strings.Repeat(" ", len(first))
	b.WriteString(first)
	width := len(first)
	for i, word := range strings.Fields(text) {
		switch n := len([]rune(word)); {
		case i == 0:
			width += n
		case width+1+n > columns && !startsBlock.MatchString(word):
			b.WriteString("\n" + indent)
			width = len(indent) + n
		default:
			b.WriteString(" ")
			width += 1 + n
		}
		b.WriteString(word)
	}
	b.WriteString("\n")
}

// plain escapes what Markdown would take for emphasis.
func plain(s string) string { return strings.ReplaceAll(s, "*", `\*`) }
