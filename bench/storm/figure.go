package main

import (
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// pictureSize is that of the picture in docs/explanation/storm.md.
var pictureSize = picture.Size{Width: 1000, Height: 1200}

// figure draws runs over each other; those of the same way are one series.
func figure(runs []*runResult) *plot.Figure {
	f := &plot.Figure{Title: "An outage, second by second"}
	panel := func(title, label string, log bool, value func(s *second) float64) {
		p := plot.Panel{
			Title: title,
			X:     plot.Axis{Label: "time", Unit: plot.Seconds},
			Y:     plot.Axis{Label: label, Unit: plot.Count, Log: log},
		}
		if log {
			p.Y.Min, p.Y.Max = 1, 30_000
		}
		for _, r := range runs {
			p.Series = append(p.Series, r.series(value, log))
		}
		if len(runs) > 0 {
			p.Marks = []plot.Mark{{At: runs[0].Stopped, To: runs[0].Resumed, Label: "outage"}}
		}
		f.Panels = append(f.Panels, p)
	}
	panel("Good responses", "a second", false, func(s *second) float64 { return float64(s.Good) })
	panel("Errors and tries given up", "a second", false, func(s *second) float64 { return float64(s.Bad + s.Late) })
	panel("Requests at the server (it cannot tell while it is stopped)", "at once", true, func(s *second) float64 { return float64(s.AtOnce) })
	return f
}

// series is a value by seconds; told: only of those in which the server told its load.
func (r *runResult) series(value func(s *second) float64, told bool) plot.Series {
	s := plot.Series{Name: r.title()}
	for i := range r.Seconds {
		if told && r.Seconds[i].AtOnce == 0 {
			continue // the server could not tell
		}
		s.X = append(s.X, float64(i)+0.5)
		s.Y = append(s.Y, value(&r.Seconds[i]))
	}
	return s
}

// title is the run's name in a legend.
func (r *runResult) title() string {
	name := r.Name
	if r.Outage != "stop" {
		name += ", " + r.Outage
	}
	if r.Clients != "naive" {
		name += ", " + r.Clients + " clients"
	}
	if r.Proxies > 1 {
		name += ", many processes"
	}
	return name
}
