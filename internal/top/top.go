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
	"github.com/retryproxy/retryproxy/plot"
	safe "github.com/retryproxy/retryproxy/proxy/printable"
)

// shownRequests is the number of failed requests below the tables.
const shownRequests = 6

// Size is the usable size of a window; 0 means no limit.
type Size struct{ Columns, Rows int }

// Write writes s as tables, with colours and block characters if the screen supports them.
// In a narrow window, tables lose their least important columns and text is wrapped. In a
// low one, the last lines are left out. No line is wider than the window.
func Write(w io.Writer, s *page.Snapshot, screen plot.Screen, size Size) error {
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
	screen plot.Screen
	size   Size
	lines  []string
	strip  bool // the history of a breaker is shown
}

// line adds a line of text, wrapped if it is too wide.
func (d *drawing) line(format string, args ...any) {
	d.lines = append(d.lines, wrap(fmt.Sprintf(format, args...), d.size.Columns)...)
}

// legend explains columns and marks, if the window has room for it.
func (d *drawing) legend() {
	before := len(d.lines)
	d.line("")
	d.line("%s", d.screen.Paint(faint, "first try: good at once; recovered: failed first, good in the end; p50, p99: time that clients waited for headers; attempt: one send"))
	if d.strip {
		m := d.marks()
		d.line("%s", d.screen.Paint(faint, fmt.Sprintf("breaker, %g s a mark: %s closed, %s slow start, %s half-open, %s open", page.Step.Seconds(), m["closed"], m["slow_start"], m["half_open"], m["open"])))
	}
	if rows := d.size.Rows; rows > 0 && len(d.lines) > rows {
		d.lines = d.lines[:before]
	}
}

// fit returns the text, without the lines that do not fit the window.
func (d *drawing) fit() string {
	if rows := d.size.Rows; rows > 0 && len(d.lines) > rows {
		more := fmt.Sprintf("%d more lines", len(d.lines)-rows+1)
		d.lines = append(d.lines[:rows-1:rows-1], clip(more, d.size.Columns, ""))
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
	d.line("%s%s %s, %s, up %s, %d clients connected, %s of %s kept for retries", d.screen.Paint(bold, "retryproxy"), at(s.Host), printable(s.Version), p.Position,
		(time.Duration(s.UptimeMS) * time.Millisecond).Round(time.Second), p.Connections, size(p.RetryBufferUsed), size(p.RetryBufferLimit))
	if t := p.Tokens; t.Limit > 0 {
		d.line("%d of %d tokens a minute used", t.Used, t.Limit)
	} else if t.Any() {
		d.line("%d tokens a minute used", t.Used)
	}
	if p.Draining {
		d.line("%s", d.screen.Paint(yellow, "draining: it ends when the requests in flight have"))
	}
	if p.RetryPercent < 100 {
		d.line("%s", d.screen.Paint(yellow, fmt.Sprintf("only %d %% of the retries are made (retry-percent)", p.RetryPercent)))
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
	d.line("")
	if len(s.Routes) == 0 {
		d.line("no request has come yet")
		return
	}
	t := newTable("route", "", "requests", "first try", "recovered", "failed", "retries", "p50", "p99", "attempt p50", "attempt p99", "in flight")
	t.left, t.drop = 2, []string{"attempt p50", "attempt p99", "p50", "retries", "first try", "in flight"}
	for i := range s.Routes {
		r := &s.Routes[i]
		n, l := &r.Now, &r.Last
		t.row(word(printable(r.Name)), word("now"), word(rate(n.Requests, n.Seconds)+"/s"), word(rate(n.FirstTry, n.Seconds)), count(n.Recovered, yellow, rate(n.Recovered, n.Seconds)),
			count(n.Failed, red, rate(n.Failed, n.Seconds)), word(rate(n.Retries, n.Seconds)), word(short(n.P50)), word(short(n.P99)), word(short(n.AttemptP50)), word(short(n.AttemptP99)),
			word(fmt.Sprint(r.InFlight)))
		t.row(word(""), word("5 min"), word(fmt.Sprint(l.Requests)), word(share(l.FirstTry, l.Requests)), count(l.Recovered, yellow, share(l.Recovered, l.Requests)),
			count(l.Failed, red, share(l.Failed, l.Requests)), word(fmt.Sprint(l.Retries)), word(short(l.P50)), word(short(l.P99)), word(short(l.AttemptP50)), word(short(l.AttemptP99)), word(""))
	}
	t.write(d)
	if s.MoreRoutes > 0 {
		d.line("%d more routes are in use; /metrics has all", s.MoreRoutes)
	}
}

func (d *drawing) upstreams(all []page.Upstream) {
	d.line("")
	t := newTable("upstream", "breaker", "in flight", "limit", "queued", "budget left", "busy", "idle")
	t.left, t.drop = 2, []string{"idle", "busy", "limit", "budget left"}
	for i := range all {
		u := &all[i]
		limit, budget := "none", "none"
		if u.Limit > 0 {
			limit = fmt.Sprint(u.Limit)
		}
		if u.HasBudget {
			budget = fmt.Sprint(int(u.Budget))
		}
		t.row(word(printable(u.Name)), cell{strings.ReplaceAll(u.Breaker, "_", " "), breakerColor(u.Breaker)}, word(fmt.Sprint(u.InFlight)), word(limit),
			count(uint32(max(u.Waiting, 0)), yellow, fmt.Sprint(u.Waiting)), word(budget), word(fmt.Sprint(u.Active)), word(fmt.Sprint(u.Idle)))
	}
	t.write(d)
	for i := range all {
		d.breaker(&all[i])
		if f := all[i].LastFailure; f != nil {
			d.line("%s: last failed connection %s: %s: %s", printable(all[i].Name), time.UnixMilli(f.AtMS).Format(time.TimeOnly), printable(f.Address), printable(f.Error))
		}
	}
}

// breaker adds details of a breaker that is not closed, or was not in the last minutes.
func (d *drawing) breaker(u *page.Upstream) {
	if u.Breaker != "closed" {
		d.line("%s: %s %s", printable(u.Name), u.BreakerWhy, u.OpenedBy)
	}
	history := u.History.Breaker
	if !slices.ContainsFunc(history, func(state string) bool { return state != "" && state != "open" }) {
		return
	}
	name, marks := printable(u.Name), d.marks()
	d.strip = true
	if d.size.Columns > 0 {
		room := d.size.Columns - columnsOf(name+" over 5m00s: ")
		history = history[max(len(history)-max(room, 10), 0):]
	}
	strip := ""
	for _, state := range history {
		strip += d.screen.Paint(breakerColor(state), marks[state])
	}
	over := strings.TrimSuffix((time.Duration(len(history)) * page.Step).String(), "0s")
	d.lines = append(d.lines, clip(name+" over "+over+": "+strip, d.size.Columns, d.ellipsis()))
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

func (d *drawing) requests(failed []page.Request) {
	if len(failed) == 0 {
		return
	}
	d.line("")
	t := newTable("failed last", "route", "took", "status", "why", "attempts", "request")
	t.left, t.drop, t.least = 7, []string{"attempts", "route"}, 20
	for _, r := range failed[:min(len(failed), shownRequests)] {
		var attempts []string
		for _, a := range r.Attempts {
			attempts = append(attempts, strings.ReplaceAll(a.Result, "_", " ")+" "+short(a.Took))
		}
		status := "none"
		if r.Code > 0 {
			status = fmt.Sprint(r.Code)
		}
		t.row(word(time.UnixMilli(r.BeganMS).Format(time.TimeOnly)), word(printable(r.Route)), word(short(r.Took)), word(status),
			word(strings.ReplaceAll(r.Outcome, "_", " ")), word(strings.Join(attempts, ", ")), word(printable(r.Method+" "+r.Path)))
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
