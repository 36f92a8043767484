// Package text writes the output of commands: tables, wrapped lines, colours, problems of the
// settings, JSON.
package text

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Table aligns columns with spaces.
type Table struct{ w *tabwriter.Writer }

// NewTable returns a Table that writes to w.
func NewTable(w io.Writer) Table {
	return Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
}

// Row adds a row.
func (t Table) Row(cells ...string) {
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// Flush writes the table. Call it after the last row.
func (t Table) Flush() { _ = t.w.Flush() } // errors of the writer are ignored

// Columns writes a table of numbers: right-aligned columns, indented by two spaces. With names, the
// first column is left-aligned.
func Columns(w io.Writer, rows [][]string, names bool) {
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row[0]))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range rows {
		first := row[0]
		if names {
			first = fmt.Sprintf("%-*s", width, first)
		}
		fmt.Fprintln(t, first+"\t"+strings.Join(row[1:], "\t")+"\t")
	}
	_ = t.Flush() // errors of the writer are ignored
}

// Wrap breaks text at spaces, but not before a percent sign, into lines of at most width characters. A longer word is a line of its
// own. There is at least one line.
func Wrap(text string, width int) []string {
	line, used := "", 0
	var lines []string
	for i, word := range words(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			line, used = word, n
		case used+1+n > width:
			lines = append(lines, line)
			line, used = word, n
		default:
			line, used = line+" "+word, used+1+n
		}
	}
	return append(lines, line)
}

// words returns the words of a text. A percent sign belongs to the number before it.
func words(text string) (all []string) {
	for _, word := range strings.Fields(text) {
		if last := len(all) - 1; last >= 0 && word[0] == '%' {
			all[last] += " " + word
			continue
		}
		all = append(all, word)
	}
	return all
}

// Paragraph breaks text like Wrap into lines that end at column width. The first one begins at column
// indent, where the cursor is; the others are indented as far.
func Paragraph(text string, indent, width int) string {
	return strings.Join(Wrap(text, width-indent), "\n"+strings.Repeat(" ", indent))
}

// Paint colours words: only on a terminal, and not if NO_COLOR is set (no-color.org).
type Paint struct{ screen terminal.Screen }

// PaintFor returns the Paint for w.
func PaintFor(w io.Writer, getenv func(string) string) Paint {
	return Paint{terminal.ScreenOf(w, getenv)}
}

// PaintOf returns the Paint for a screen.
func PaintOf(s terminal.Screen) Paint { return Paint{s} }

func (p Paint) Red(s string) string    { return p.screen.Paint("31", s) }
func (p Paint) Yellow(s string) string { return p.screen.Paint("33", s) }
func (p Paint) Green(s string) string  { return p.screen.Paint("32", s) }
func (p Paint) Bold(s string) string   { return p.screen.Paint("1", s) }

// JSON writes v indented, with a newline.
func JSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// Problems writes one line per problem.
func Problems(w io.Writer, p Paint, problems config.Problems) {
	for _, problem := range problems {
		if problem.Warning {
			fmt.Fprintln(w, p.Yellow("warning:"), problem)
		} else {
			fmt.Fprintln(w, p.Red("error:"), problem)
		}
	}
}

// Span formats a duration, and backoff.Forever as "no limit".
func Span(d time.Duration) string {
	if d == backoff.Forever {
		return "no limit"
	}
	return config.DurationText(d.Round(time.Millisecond))
}

// Plural returns "1 thing" or "2 things", "1 retry" or "2 retries".
func Plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	if stem, ok := strings.CutSuffix(thing, "ry"); ok {
		return fmt.Sprintf("%d %sries", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Checked remembers the first error of a writer. Commands that print do not check each write, and the
// disk may be full.
type Checked struct {
	io.Writer
	Err error
}

// Write implements io.Writer.
func (w *Checked) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if err != nil && w.Err == nil {
		w.Err = fmt.Errorf("write the output: %w", err)
	}
	return n, err
}

// Unwrap returns the writer, which may be a terminal.
func (w *Checked) Unwrap() io.Writer { return w.Writer }
