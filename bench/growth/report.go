package main

import (
	"fmt"
	"io"

	"github.com/retryproxy/retryproxy/bench/internal/show"
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// tell prints a table for each axis, as Markdown, and writes the files.
func (d *document) tell(w io.Writer, o *options) error {
	fmt.Fprintf(w, "Machine: %s. Commit %s.\n", d.Machine, d.Commit)
	for _, p := range d.Proxies {
		fmt.Fprintf(w, "%s.\n", p)
	}
	fmt.Fprintf(w, "CPU time per request in microseconds, median of the rounds; the ratio is the median of those within a round.\n")
	for _, g := range d.Growths {
		g.tell(w)
	}
	if o.json != "" {
		if err := show.JSON(o.json, d); err != nil {
			return err
		}
	}
	if o.png == "" {
		return nil
	}
	return show.PNG(o.png, d.figure(), picture.Size{Width: 1000, Height: 1100})
}

func (g *growth) tell(w io.Writer) {
	fmt.Fprintf(w, "\n| %s | retryproxy | HAProxy | ratio |\n| ---: | ---: | ---: | ---: |\n", g.Label)
	for _, p := range g.Points {
		failed := ""
		if p.Failed > 0 {
			failed = fmt.Sprintf(" (%.3g %% of clients got an error)", 100*p.Failed)
		}
		if p.Peer == 0 {
			fmt.Fprintf(w, "| %d | %.1f%s | | |\n", p.Value, p.Ours, failed)
			continue
		}
		fmt.Fprintf(w, "| %d | %.1f%s | %.1f | %.2f |\n", p.Value, p.Ours, failed, p.Peer, p.Ratio)
	}
}

// figure draws a panel for each axis; both scales are logarithmic where the
// values span more than two powers of ten.
func (d *document) figure() *plot.Figure {
	f := &plot.Figure{Title: "CPU time of a request", Columns: 2}
	for _, g := range d.Growths {
		last := g.Points[len(g.Points)-1].Value
		p := plot.Panel{
			X: plot.Axis{Label: g.Label, Log: last > 100},
			Y: plot.Axis{Label: "of a request", Unit: plot.Seconds, Log: g.Name == "response" || g.Name == "request"},
		}
		p.Series = append(p.Series, g.series("retryproxy", p.X.Log, func(p *point) float64 { return p.Ours }))
		if g.Points[0].Peer > 0 {
			p.Series = append(p.Series, g.series("HAProxy", p.X.Log, func(p *point) float64 { return p.Peer }))
		}
		if !p.Y.Log {
			p.Y.Min = 0
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

// series leaves zero out where the scale has none.
func (g *growth) series(name string, log bool, of func(*point) float64) plot.Series {
	s := plot.Series{Name: name}
	for i := range g.Points {
		p := &g.Points[i]
		if log && p.Value == 0 {
			continue
		}
		s.X, s.Y = append(s.X, float64(p.Value)), append(s.Y, of(p)/1e6)
	}
	return s
}
