package docs

import (
	"regexp"
	"strings"

	"github.com/retryproxy/retryproxy/internal/text"
)

// columns is the width of the text of a page.
const columns = 100

// startsBlock matches a space before a word that Markdown takes for a list, a heading or a quotation
// at the beginning of a line.
var startsBlock = regexp.MustCompile(` ([-+*#>=|]|[0-9]+[.)](?: |$))`)

// glue stands for a space at which no line ends.
const glue = "\x00"

// paragraph writes words in lines of at most columns. first comes before the first line, and the
// others are indented as far.
func paragraph(b *strings.Builder, first, words string) {
	lines := text.Paragraph(startsBlock.ReplaceAllString(words, glue+"$1"), len(first), columns)
	b.WriteString(first + strings.ReplaceAll(lines, glue, " ") + "\n")
}

// plain escapes what Markdown would take for emphasis.
func plain(s string) string { return strings.ReplaceAll(s, "*", `\*`) }
