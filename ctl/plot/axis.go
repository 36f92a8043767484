package plot

import (
	"fmt"
	"math"
)

// Unit is the unit of an axis. It determines the positions and the format of ticks.
type Unit string

// The units.
const (
	Number  Unit = ""        // any quantity: 0.5, 20k
	Count   Unit = "count"   // integers: no tick between 1 and 2
	Seconds Unit = "seconds" // durations: 100ms, 1s, 1m, 1h, 1d
)

// Axis is one axis of a panel.
type Axis struct {
	Label string `json:"label,omitempty"`
	Unit  Unit   `json:"unit,omitempty"`
	Log   bool   `json:"log,omitempty"` // logarithmic; values that are not above 0 (1e-150, to be exact) are drawn on its lower edge
}

// widestLog is the greatest ratio between the ends of a logarithmic axis. With more, tiny values
// would take most of the space.
const widestLog = 1e9

func (a *Axis) validate(name string) error {
	switch a.Unit {
	case Number, Count, Seconds:
		return textError(name, a.Label)
	}
	return fmt.Errorf("%s: unit %q, expected none, %q or %q", name, a.Unit, Count, Seconds)
}

// Span is the range of an axis: Low < High, and 0 < Low on a logarithmic one.
type Span struct{ Low, High float64 }

// At returns the position of v on the axis, from 0 at the lower or left end to 1. Values beyond the
// ends are at the ends.
func (a *Axis) At(s Span, v float64) float64 {
	if a.Log {
		if v <= s.Low {
			return 0
		}
		return clamp(math.Log(v/s.Low) / math.Log(s.High/s.Low))
	}
	return clamp((v - s.Low) / (s.High - s.Low))
}

func clamp(v float64) float64 { return min(max(v, 0), 1) }

// Bounds returns the spans of both axes of a valid panel. They cover all values; a linear Y axis of
// positive values begins at 0.
func (p *Panel) Bounds() (x, y Span) {
	var xs, ys [][]float64
	for i := range p.Series {
		s := &p.Series[i]
		xs = append(xs, s.X)
		ys = append(ys, s.Y, s.Low, s.High)
	}
	y = p.Y.span(ys)
	if !p.Y.Log && y.Low > 0 {
		y.Low = 0
	}
	return p.X.span(xs), y
}

// span returns a span that covers all values that the axis can show.
func (a *Axis) span(values [][]float64) Span {
	s := Span{math.Inf(1), math.Inf(-1)}
	for _, list := range values {
		for _, v := range list {
			if v >= smallest || !a.Log {
				s.Low, s.High = min(s.Low, v), max(s.High, v)
			}
		}
	}
	if a.Log {
		return s.positive()
	}
	return s.open()
}

// open widens an empty span, which still covers its values.
func (s Span) open() Span {
	switch {
	case s.Low < s.High:
		return s
	case s.Low > s.High, s.Low == 0: // no values, or only zeros
		return Span{0, 1}
	}
	half := math.Abs(s.Low) / 2
	return Span{s.Low - half, s.High + half}
}

// positive is open for a logarithmic axis.
func (s Span) positive() Span {
	switch {
	case s.Low > s.High: // nothing above 0
		return Span{0.1, 1}
	case s.Low == s.High:
		return Span{s.Low / 2, s.High * 2}
	}
	return Span{max(s.Low, s.High/widestLog), s.High}
}
