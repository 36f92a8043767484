package advise

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/plot"
)

// Text writes the report for people: per route a line about its traffic, a line about the results
// and costs of retries, and a table of proposals with their reasons. The error is that of w.
func (r *Report) Text(w io.Writer, s plot.Screen) error {
	p := &printer{w: w, screen: s}
	for _, note := range r.Notes {
		p.wrappedIn("33", "note: ", note)
	}
	for i := range r.Routes {
		if i > 0 || len(r.Notes) > 0 {
			p.printf("\n")
		}
		p.route(&r.Routes[i], r)
	}
	return p.err
}

// printer keeps the first error of its writer.
type printer struct {
	w      io.Writer
	screen plot.Screen
	err    error
}

func (p *printer) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// in colours text on a terminal.
func (p *printer) in(code, text string) string {
	if !p.screen.Color {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// wrapped prints text within the screen's width; further lines are indented under the first.
func (p *printer) wrapped(lead, text string) { p.wrappedIn("", lead, text) }

// wrappedIn is wrapped with a coloured lead.
func (p *printer) wrappedIn(code, lead, text string) {
	indent := utf8.RuneCountInString(lead)
	used := indent
	if code != "" {
		lead = p.in(code, lead)
	}
	p.printf("%s", lead)
	for i, word := range strings.Fields(text) {
		wide := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+wide > p.screen.Width:
			p.printf("\n%s", strings.Repeat(" ", indent))
			used = indent
		default:
			p.printf(" ")
			used++
		}
		p.printf("%s", word)
		used += wide
	}
	p.printf("\n")
}

func (p *printer) route(r *Route, all *Report) {
	p.printf("%s: %s%d requests, %d attempts, %d of them failed, %s\n", p.in("1", "route "+r.Name), dryRun(r), r.Requests, r.Attempts, r.Failed, all.time())
	p.wrapped("  ", r.Retries.text(r))
	if len(r.Proposals) > 0 {
		p.printf("\n")
		p.table(r.Proposals)
	}
	for _, note := range r.Notes {
		p.wrappedIn("33", "  note: ", note)
	}
}

// time describes the length of the observation.
func (r *Report) time() string {
	if r.Seconds <= 0 {
		return "since the start"
	}
	d := time.Duration(r.Seconds * float64(time.Second)).Round(time.Second)
	if r.Since == "start" {
		return fmt.Sprintf("since the start %v ago", d)
	}
	return fmt.Sprintf("in %v", d)
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
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  SETTING\tNOW\tPROPOSED")
	for i := range list {
		now := list[i].Now
		if now == "" {
			now = "-"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", list[i].Setting, now, list[i].Proposed)
	}
	_ = t.Flush() // a strings.Builder returns no error
	lines := strings.SplitAfter(b.String(), "\n")
	p.printf("%s", lines[0])
	for i := range list {
		line := strings.TrimSuffix(lines[i+1], "\n")
		if !list[i].Same() {
			line = p.in("32", line)
		}
		p.printf("%s\n", line)
		p.wrapped("    ", list[i].Why)
	}
}

func dryRun(r *Route) string {
	if r.DryRun {
		return "dry run, "
	}
	return ""
}
