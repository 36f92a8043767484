// Package top writes a Snapshot of the page as text, for a terminal or a file. It keeps no
// state and sends no requests.
package top

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/retryproxy/retryproxy/internal/admin/page"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
	safe "github.com/retryproxy/retryproxy/proxy/printable"
)

// shownRequests is the number of failed requests below the tables.
const shownRequests = 6

// Size is the usable size of a window; 0 means no limit.
type Size struct{ Columns, Rows int }

// Write writes s as tables, with colours and block characters if the screen supports them.
// In a narrow window, text is wrapped, and the last columns of tables, which matter least, are left out.
// In a low one, the last lines are left out.
func Write(w io.Writer, s *page.Snapshot, screen terminal.Screen, size Size) error {
	d := drawing{screen: screen, size: size}
	d.head(&s.State)
	d.routes(&s.State)
	d.upstreams(s.State.Upstreams)
	d.requests(s.Requests.Failed)
	d.legend()
	_, err := io.WriteString(w, d.fit())
	return err
}

type drawing struct {
	screen terminal.Screen
	size   Size
	lines  []string
	strip  bool // the history of a breaker is shown
}

// continued marks the further lines of a wrapped text.
const continued = "  "

// line adds a line of text in a colour, "" for none. It is wrapped if it is too wide.
func (d *drawing) line(color, format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	lines := []string{line}
	if d.size.Columns > 0 {
		lines = text.Wrap(line, d.size.Columns-len(continued))
	}
	for i, line := range lines {
		if i > 0 {
			line = continued + line
		}
		d.lines = append(d.lines, d.screen.Paint(color, line))
	}
}

// name returns the name of a route or upstream without control characters. In a window it takes at most a quarter of a line, so
// that there is room for the columns after it.
func (d *drawing) name(s string) string {
	runes, most := []rune(printable(s)), max(d.size.Columns/4, leastName)
	if d.size.Columns <= 0 || len(runes) <= most {
		return string(runes)
	}
	return string(runes[:most-1]) + "~"
}

// leastName is the number of characters to which names are never cut.
const leastName = 10

// legend explains columns and marks, if the window has room for it.
func (d *drawing) legend() {
	before := len(d.lines)
	d.line("", "")
	d.line(faint, "first attempt: good at once; recovered: failed first, good in the end; p50, p99: time that clients waited for headers; attempt: one send")
	if d.strip {
		m := d.marks()
		d.line(faint, "breaker, %g s a mark: %s closed, %s slow start, %s half-open, %s open", page.Step.Seconds(), m["closed"], m["slow_start"], m["half_open"], m["open"])
	}
	if rows := d.size.Rows; rows > 0 && len(d.lines) > rows {
		d.lines = d.lines[:before]
	}
}

// fit returns the text, without the lines and characters that do not fit the window.
func (d *drawing) fit() string {
	if columns := d.size.Columns; columns > 0 {
		for i, line := range d.lines {
			d.lines[i] = cut(line, columns)
		}
	}
	if rows := d.size.Rows; rows > 0 && len(d.lines) > rows {
		d.lines = append(d.lines[:rows-1:rows-1], fmt.Sprintf("%d more lines", len(d.lines)-rows+1))
	}
	return strings.Join(d.lines, "\n") + "\n"
}

// The colours (ECMA-48 SGR). They carry no information beyond the text.
const (
	bold   = "1"
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (d *drawing) head(s *page.State) {
	p := &s.Process
	d.line(bold, "retryproxy%s %s, %s, up %s, %d clients connected, %s of %s kept for retries", at(s.Host), printable(s.Version), p.Position,
		(time.Duration(s.UptimeMS) * time.Millisecond).Round(time.Second), p.Connections, size(p.RetryBufferUsed), size(p.RetryBufferLimit))
	if t := p.Tokens; t.Limit > 0 {
		d.line("", "%d of %d tokens a minute used", t.Used, t.Limit)
	} else if t.Any() {
		d.line("", "%d tokens a minute used", t.Used)
	}
	if p.Draining {
		d.line(yellow, "draining: it ends when the requests in flight have")
	}
	if p.RetryPercent < 100 {
		d.line(yellow, "only %d %% of the retries are made (retry-percent)", p.RetryPercent)
	}
}

// at returns the host on which the process runs, if it is known.
func at(host string) string {
	if host == "" {
		return ""
	}
	return " on " + printable(host)
}

func (d *drawing) routes(s *page.State) {
	d.line("", "")
	if len(s.Routes) == 0 {
		d.line("", "no request has come yet")
		return
	}
	t := newTable(2, "route", "", "requests", "first attempt", "recovered", "failed", "p99", "in flight", "retries", "p50", "attempt p99", "attempt p50")
	for i := range s.Routes {
		r := &s.Routes[i]
		n, l := &r.Now, &r.Last
		t.row(word(d.name(r.Name)), word("now"), word(rate(n.Requests, n.Seconds)+"/s"), word(rate(n.FirstAttempt, n.Seconds)), count(n.Recovered, yellow, rate(n.Recovered, n.Seconds)),
			count(n.Failed, red, rate(n.Failed, n.Seconds)), word(atMost(n.P99)), word(fmt.Sprint(r.InFlight)),
			word(rate(n.Retries, n.Seconds)), word(atMost(n.P50)), word(atMost(n.AttemptP99)), word(atMost(n.AttemptP50)))
		t.row(word(""), word("5 min"), word(fmt.Sprint(l.Requests)), word(share(l.FirstAttempt, l.Requests)), count(l.Recovered, yellow, share(l.Recovered, l.Requests)),
			count(l.Failed, red, share(l.Failed, l.Requests)), word(atMost(l.P99)), word(""),
			word(fmt.Sprint(l.Retries)), word(atMost(l.P50)), word(atMost(l.AttemptP99)), word(atMost(l.AttemptP50)))
	}
	t.write(d)
	if s.MoreRoutes > 0 {
		d.line("", "%d more routes are in use; /metrics has all", s.MoreRoutes)
	}
}

func (d *drawing) upstreams(all []page.Upstream) {
	d.line("", "")
	t := newTable(2, "upstream", "breaker", "in flight", "queued", "budget left", "limit", "busy", "idle")
	for i := range all {
		u := &all[i]
		limit, budget := "none", "none"
		if u.Limit > 0 {
			limit = fmt.Sprint(u.Limit)
		}
		if u.HasBudget {
			budget = fmt.Sprint(int(u.Budget))
		}
		t.row(word(d.name(u.Name)), cell{strings.ReplaceAll(u.Breaker, "_", " "), breakerColor(u.Breaker)}, word(fmt.Sprint(u.InFlight)),
			count(uint32(max(u.Waiting, 0)), yellow, fmt.Sprint(u.Waiting)), word(budget), word(limit), word(fmt.Sprint(u.Active)), word(fmt.Sprint(u.Idle)))
	}
	t.write(d)
	for i := range all {
		d.breaker(&all[i])
		if f := all[i].LastFailure; f != nil {
			d.line("", "%s: last failed connection %s: %s: %s", printable(all[i].Name), time.UnixMilli(f.AtMS).Format(time.TimeOnly), printable(f.Address), printable(f.Error))
		}
	}
}

// breaker adds details of a breaker that is not closed, or was not in the last minutes.
func (d *drawing) breaker(u *page.Upstream) {
	if u.Breaker != "closed" {
		d.line("", "%s: %s %s", printable(u.Name), u.BreakerWhy, u.OpenedBy)
	}
	history := u.History.Breaker
	if !slices.ContainsFunc(history, func(state string) bool { return state != "" && state != "open" }) {
		return
	}
	d.strip = true
	strip, marks := "", d.marks()
	for _, state := range history {
		strip += d.screen.Paint(breakerColor(state), marks[state])
	}
	d.lines = append(d.lines, fmt.Sprintf("%s  %s, the last %s", strip, printable(u.Name), text.Span(time.Duration(len(history))*page.Step)))
}

// marks returns the character of each state of a breaker.
func (d *drawing) marks() map[string]string {
	if d.screen.Unicode {
		return map[string]string{"": " ", "closed": "▁", "slow_start": "▄", "half_open": "▆", "open": "█"}
	}
	return map[string]string{"": " ", "closed": ".", "slow_start": "-", "half_open": "+", "open": "#"}
}

func breakerColor(state string) string {
	return map[string]string{"closed": green, "slow_start": yellow, "half_open": yellow, "open": red}[state]
}

// requests adds the last failed requests. Each ends with text of any length, so that a window
// shows as much of the request as fits.
func (d *drawing) requests(failed []page.Request) {
	if len(failed) == 0 {
		return
	}
	d.line("", "")
	t := newTable(5, "failed last", "status", "took", "why", "request, its route and attempts")
	for _, r := range failed[:min(len(failed), shownRequests)] {
		var attempts []string
		for _, a := range r.Attempts {
			attempts = append(attempts, strings.ReplaceAll(a.Result, "_", " ")+" "+short(a.Took))
		}
		status := "none"
		if r.Code > 0 {
			status = fmt.Sprint(r.Code)
		}
		t.row(word(time.UnixMilli(r.BeganMS).Format(time.TimeOnly)), word(status), word(short(r.Took)),
			word(strings.ReplaceAll(r.Outcome, "_", " ")), word(printable(fmt.Sprintf("%s %s (%s) %s", r.Method, r.Path, r.Route, strings.Join(attempts, ", ")))))
	}
	t.write(d)
}

// printable replaces control characters of a client's text, which could control the
// terminal, and characters that may not take one column of it.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= firstCombining {
			return unicode.ReplacementChar
		}
		return r
	}, safe.Text(s, math.MaxInt))
}

// firstCombining is where the characters begin that take no column or two.
const firstCombining = 0x300
