package simulate

import (
	"time"

	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/ctl/sim"
)

// View selects what a figure shows; at least one field must be set.
type View struct{ Good, Errors, Load bool }

// mostPoints is the maximum number of points of a line; longer storms are drawn with a
// coarser resolution.
const mostPoints = 600

// Figure returns a plot of all runs.
func (s *Simulation) Figure(v View) *plot.Figure {
	f := &plot.Figure{Title: "An outage in virtual time"}
	panel := func(title, label string, log bool, value func(sum sim.Second, seconds float64) float64) {
		p := plot.Panel{
			Title: title,
			X:     plot.Axis{Label: "time", Unit: plot.Seconds},
			Y:     plot.Axis{Label: label, Unit: plot.Count, Log: log},
		}
		for i := range s.Lines {
			p.Series = append(p.Series, s.Lines[i].series(s.Wish.Length, value))
		}
		if s.Wish.Outage != "none" {
			p.Marks = []plot.Mark{{At: s.Wish.Peace.Seconds(), To: (s.Wish.Peace + s.Wish.Down).Seconds(), Label: "outage"}}
		}
		f.Panels = append(f.Panels, p)
	}
	if v.Good {
		panel("Good responses", "a second", false, func(x sim.Second, seconds float64) float64 { return float64(x.Good) / seconds })
	}
	if v.Errors {
		panel("Errors and requests given up", "a second", false, func(x sim.Second, seconds float64) float64 { return float64(x.Bad+x.Late) / seconds })
	}
	if v.Load {
		panel("Requests at the server", "at once", true, func(x sim.Second, _ float64) float64 { return float64(max(x.AtOnce, 1)) })
	}
	return f
}

func (l *Line) series(length time.Duration, value func(sim.Second, float64) float64) plot.Series {
	s := plot.Series{Name: l.Label}
	each := step(length)
	for at := time.Duration(0); at+each <= length; at += each {
		s.X = append(s.X, (at + each/2).Seconds())
		s.Y = append(s.Y, value(l.Result.Sum(at, at+each), each.Seconds()))
	}
	return s
}

// step returns the time between two points: whole seconds.
func step(length time.Duration) time.Duration {
	return max(1, (length/time.Second+mostPoints-1)/mostPoints) * time.Second
}
