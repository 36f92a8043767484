package plot

import (
	"fmt"
	"math"
)

// Unit says what the numbers of an axis are, and so where its ticks lie and
// how they are written.
type Unit string

// The units.
const (
	Number  Unit = ""        // any quantity: 0.5, 20k
	Count   Unit = "count"   // whole things: no tick between 1 and 2
	Seconds Unit = "seconds" // durations: 100ms, 1s, 1m, 1h, 1d
)

// Axis is one side of a panel.
type Axis struct {
	Label string `json:"label,omitempty"`
	Unit  Unit   `json:"unit,omitempty"`
	Log   bool   `json:"log,omitempty"` // logarithmic; values that are not above 0 (1e-150, to be exact) lie on its lower edge

	// Min and Max bound the axis; what is beyond lies on the edge. Both 0: the
	// data bounds it, and a linear Y axis of positive values begins at 0.
	Min float64 `json:"min,omitempty"`
	Max float64 `json:"max,omitempty"`
}

// widestLog is how far a logarithmic axis reaches down from its upper end when
// nobody said: past that, small values are dust that squeezes the rest.
const widestLog = 1e9

func (a *Axis) validate(name string) error {
	switch a.Unit {
	case Number, Count, Seconds:
	default:
		return fmt.Errorf("%s: unit %q, expected none, %q or %q", name, a.Unit, Count, Seconds)
	}
	if a.Min == 0 && a.Max == 0 {
		return textError(name, a.Label)
	}
	if !finite(a.Min) || !finite(a.Max) || a.Min >= a.Max || a.Log && a.Min < smallest {
		return fmt.Errorf("%s: from %v to %v", name, a.Min, a.Max)
	}
	return textError(name, a.Label)
}

// Span is what an axis covers: Low < High, and 0 < Low on a logarithmic one.
type Span struct{ Low, High float64 }

// At is where v lies on the axis, from 0 at the lower or left end to 1. What
// is beyond the ends lies on them.
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

// Bounds are the spans of both axes of a valid panel.
func (p *Panel) Bounds() (x, y Span) {
	var xs, ys [][]float64
	for i := range p.Series {
		s := &p.Series[i]
		xs = append(xs, s.X)
		ys = append(ys, s.Y, s.Low, s.High)
	}
	y = p.Y.span(ys)
	if !p.Y.Log && p.Y.Min == 0 && p.Y.Max == 0 && y.Low > 0 {
		y.Low = 0
	}
	return p.X.span(xs), y
}

// span covers all values, or is what the axis says.
func (a *Axis) span(values [][]float64) Span {
	if a.Min != 0 || a.Max != 0 {
		return Span{a.Min, a.Max}
	}
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

// open gives a span without length some, without losing what it covers.
func (s Span) open() Span {
	switch {
	case s.Low < s.High:
		return s
	case s.Low > s.High, s.Low == 0: // nothing, or nothing but zeros
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
