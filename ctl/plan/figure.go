package plan

import (
	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// View selects what a figure shows.
type View struct {
	Total       bool // when each retry begins, instead of the wait before it
	Linear, Log bool // the panels
}

// mostBands is the maximum number of bands that remain readable on top of each other.
const mostBands = 2

// Figure returns the plan as lines in one panel for each axis requested; at least one is required.
// It needs a line with at least one retry: see Drawable.
func (p *Plan) Figure(v View) *plot.Figure {
	f := &plot.Figure{Title: "Wait before each retry", Columns: 2}
	label := "wait"
	if v.Total {
		f.Title, label = "When each retry begins", "after the first attempt's begin"
	}
	if len(p.Lines) == 1 {
		f.Title += ": " + p.Lines[0].describe()
	}
	for _, log := range []bool{false, true} {
		if log && !v.Log || !log && !v.Linear {
			continue
		}
		panel := plot.Panel{X: plot.Axis{Label: "retry", Unit: plot.Count}, Y: plot.Axis{Label: label, Unit: plot.Seconds, Log: log}}
		if v.Linear && v.Log {
			panel.Title = map[bool]string{false: "linear", true: "logarithmic"}[log]
		}
		for i := range p.Lines {
			if l := &p.Lines[i]; len(l.Rows) > 0 {
				panel.Series = append(panel.Series, l.series(v.Total, len(p.Lines) <= mostBands))
			}
		}
		f.Panels = append(f.Panels, panel)
	}
	return f
}

// Drawable reports whether there is something to draw.
func (p *Plan) Drawable() bool {
	for i := range p.Lines {
		if len(p.Lines[i].Rows) > 0 {
			return true
		}
	}
	return false
}

func (l *Line) series(total, band bool) plot.Series {
	s := plot.Series{Name: l.Label}
	varies := l.varies()
	for _, row := range l.Rows {
		of := row.Wait
		if total {
			of = row.Total
		}
		s.X = append(s.X, float64(row.Retry))
		s.Y = append(s.Y, of.Mean.Seconds())
		if band && varies {
			s.Low, s.High = append(s.Low, of.Min.Seconds()), append(s.High, of.Max.Seconds())
		}
	}
	return s
}

// varies reports whether some wait is random.
func (l *Line) varies() bool {
	for _, row := range l.Rows {
		if !same(row.Wait) || !same(row.Total) {
			return true
		}
	}
	return false
}

func same(r backoff.Range) bool { return r.Min == r.Max }
