package simulate

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/ctl/sim"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
)

// Text writes the simulation for people: its description, a table with a row per run, and
// the plot.
func (s *Simulation) Text(w io.Writer, v View, screen terminal.Screen) {
	fmt.Fprintln(w, s.players())
	text.Columns(w, s.table(), true)
	fmt.Fprint(w, "\n"+s.Figure(v).Text(screen))
}

// players returns a description of the simulation.
func (s *Simulation) players() string {
	w := s.Wish
	c := w.config()
	var b strings.Builder
	fmt.Fprintf(&b, "%d clients: a request each %v on average, given up after %v (seed %d)\n", w.Clients, w.Every, w.Patience, w.Seed)
	fmt.Fprintf(&b, "The server answers after %v with up to %d at once, and %s times as long for each %s more\n",
		w.Base, c.Server.Free, number(c.Server.Factor), number(c.Server.Step))
	what := map[string]string{
		"stop": fmt.Sprintf("it is stopped, and its kernel queues up to %d connections", c.Server.AcceptQueue),
		"kill": "it is killed, and its port refuses", "503": "it answers 503 to everything",
		"slow": "every response takes " + number(slower) + " times as long",
	}[w.Outage]
	if what == "" {
		fmt.Fprintf(&b, "For %v nothing goes wrong\n", w.Length)
		return b.String()
	}
	fmt.Fprintf(&b, "After %v %s for %v; then there are %v more\n", w.Peace, what, w.Down, w.Length-w.Peace-w.Down)
	return b.String()
}

func (s *Simulation) table() [][]string {
	outage := s.Wish.Outage != "none"
	head := []string{"", "good/s", "peak at the server", "sent per good response"}
	if outage {
		head = []string{"", "good/s before", "during", "at the end", "good again", "errors under 5 %", "peak at the server", "sent per good response"}
	}
	rows := [][]string{head}
	for i := range s.Lines {
		l := &s.Lines[i]
		row := []string{l.Label, number(l.Before), number(l.During), number(l.After), after(l.Good), after(l.Errors), strconv.Itoa(l.Peak), load(l.Load)}
		if !outage {
			row = []string{l.Label, number(l.After), strconv.Itoa(l.Peak), load(l.Load)}
		}
		rows = append(rows, row)
	}
	return rows
}

// number formats v with at least three significant digits.
func number(v float64) string {
	if v >= 100 {
		return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func load(v float64) string {
	if math.IsInf(v, 1) {
		return "no good response"
	}
	return number(v)
}

func after(d time.Duration) string {
	if d == sim.Never {
		return "never"
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}
