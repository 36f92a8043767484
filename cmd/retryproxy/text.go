package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/policy"
)

// textTable aligns columns by spaces.
type textTable struct{ w *tabwriter.Writer }

func newTable(w io.Writer) textTable {
	return textTable{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
}

func (t textTable) row(cells ...string) {
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t textTable) flush() { _ = t.w.Flush() } // a reader that left needs no table

// paint colours words for people: only on a terminal, and not when NO_COLOR is
// set (no-color.org).
type paint struct{ on bool }

func (o *outside) paint(w io.Writer) paint {
	return paint{isTerminal(w) && o.getenv("NO_COLOR") == "" && o.getenv("TERM") != "dumb"}
}

func isTerminal(w io.Writer) bool { return terminal.Is(w) }

func (p paint) red(s string) string    { return p.in("31", s) }
func (p paint) yellow(s string) string { return p.in("33", s) }
func (p paint) green(s string) string  { return p.in("32", s) }
func (p paint) bold(s string) string   { return p.in("1", s) }

func (p paint) in(code, s string) string {
	if !p.on {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// printJSON writes v indented, with a line end.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printProblems writes one line per problem.
func printProblems(w io.Writer, p paint, problems settings.Problems) {
	for _, problem := range problems {
		if problem.Warning {
			fmt.Fprintln(w, p.yellow("warning:"), problem)
		} else {
			fmt.Fprintln(w, p.red("error:"), problem)
		}
	}
}

// span writes a duration, and "no limit" for one without end.
func span(d time.Duration) string {
	if d == policy.Forever {
		return "no limit"
	}
	return settings.DurationText(d.Round(time.Millisecond))
}

// plural is "1 thing" or "2 things".
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
