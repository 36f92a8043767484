package advise

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
)

// Text writes the report for people: per route a line about its traffic, a line about the results
// and costs of retries, and a table of proposals with their reasons.
func (r *Report) Text(w io.Writer, s terminal.Screen) {
	p := &printer{w, text.PaintOf(s), s.Width}
	for _, note := range r.Notes {
		p.note("", note)
	}
	for i := range r.Routes {
		if i > 0 || len(r.Notes) > 0 {
			p.printf("\n")
		}
		p.route(&r.Routes[i], r)
	}
}

type printer struct {
	w io.Writer
	text.Paint
	width int
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.w, format, args...) }

func (p *printer) note(indent, note string) {
	p.printf("%s%s ", indent, p.Yellow("note:"))
	p.wrap(len(indent+"note: "), note)
}

// wrap prints words within the screen's width. The cursor is at column indent, and further lines
// begin there.
func (p *printer) wrap(indent int, words string) {
	p.printf("%s\n", text.Paragraph(words, indent, p.width))
}

func (p *printer) route(r *Route, all *Report) {
	p.printf("%s: %s%s, %s, %d of them failed, %s\n", p.Bold("route "+r.Name), dryRun(r), text.Plural(int(r.Requests), "request"), text.Plural(int(r.Attempts), "attempt"), r.Failed, all.time())
	p.printf("  ")
	p.wrap(2, r.Retries.text(r))
	if len(r.Proposals) > 0 {
		p.printf("\n")
		p.table(r.Proposals)
	}
	for _, note := range r.Notes {
		p.note("  ", note)
	}
}

// time describes the length of the observation.
func (r *Report) time() string {
	if r.Seconds <= 0 {
		return "since the start"
	}
	d := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
	if r.Since == "start" {
		return "since the start " + text.Span(d) + " ago"
	}
	return "in " + text.Span(d)
}

func (t Retries) text(r *Route) string {
	if r.DryRun {
		if t.Made == 0 {
			return "there was nothing to retry"
		}
		return fmt.Sprintf("retries would recover at most %d requests (%s), for %d retries or more: +%s load, at most +%s before the budget",
			t.Recovered, percent(share(t.Recovered, r.Requests)), t.Made, percent(t.Load), percent(t.LoadAtMost))
	}
	if t.Made == 0 {
		return fmt.Sprintf("no retries were made; %d requests failed", t.GaveUp)
	}
	return fmt.Sprintf("%d retries recovered %d requests (%s): +%s load; %d requests still failed",
		t.Made, t.Recovered, percent(share(t.Recovered, r.Requests)), percent(t.Load), t.GaveUp)
}

func share(part, whole int64) float64 { return float64(part) / float64(max(1, whole)) }

// table prints the proposals, each with its reason below.
func (p *printer) table(list []Proposal) {
	var b strings.Builder
	t := text.NewTable(&b)
	t.Row("  SETTING", "NOW", "PROPOSED")
	for i := range list {
		t.Row("  "+list[i].Setting, cmp.Or(list[i].Now, "-"), list[i].Proposed)
	}
	t.Flush()
	lines := strings.SplitAfter(b.String(), "\n")
	p.printf("%s", lines[0])
	for i := range list {
		line := strings.TrimSuffix(lines[i+1], "\n")
		if !list[i].Same() {
			line = p.Green(line)
		}
		p.printf("%s\n", line)
		p.printf("    ")
		p.wrap(4, list[i].Why)
	}
}

func dryRun(r *Route) string {
	if r.DryRun {
		return "dry run, "
	}
	return ""
}
