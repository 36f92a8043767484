package main

import (
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// pictureSize is that of --png.
var pictureSize = picture.Size{Width: 1000, Height: 1200}

// figure draws the arms over each other; nil without any.
func (d *document) figure() *plot.Figure {
	if len(d.Arms) == 0 {
		return nil
	}
	f := &plot.Figure{Title: "Many processes, one rate limit"}
	panel := func(title, label string, value func(t *tick) float64) {
		p := plot.Panel{Title: title, X: plot.Axis{Label: "time", Unit: plot.Seconds}, Y: plot.Axis{Label: label, Unit: plot.Count}}
		for _, r := range d.Arms {
			s := plot.Series{Name: r.Name}
			for i := range r.Seconds {
				s.X, s.Y = append(s.X, float64(i)+0.5), append(s.Y, value(&r.Seconds[i]))
			}
			p.Series = append(p.Series, s)
			for _, q := range r.Periods[min(1, len(r.Periods)):] {
				p.Marks = append(p.Marks, plot.Mark{At: q.From, Label: "engine " + q.Name})
			}
		}
		f.Panels = append(f.Panels, p)
	}
	panel("Good responses", "a second", func(t *tick) float64 { return float64(t.Good) })
	panel("429s at the upstream", "a second", func(t *tick) float64 { return float64(t.Limited) })
	panel("Commands at the engine", "a second", func(t *tick) float64 { return float64(t.Commands) })
	return f
}
