package plot

import (
	"math"
	"testing"
)

func panelOf(y Axis, values ...float64) *Panel {
	x := make([]float64, len(values))
	for i := range x {
		x[i] = float64(i + 1)
	}
	return &Panel{Y: y, Series: []Series{{Name: "a", X: x, Y: values}}}
}

func TestBoundsOfY(t *testing.T) {
	for name, c := range map[string]struct {
		axis   Axis
		values []float64
		want   Span
	}{
		"positive values begin at 0":        {Axis{}, []float64{3, 7}, Span{0, 7}},
		"negative values are covered":       {Axis{}, []float64{-3, 7}, Span{-3, 7}},
		"only zeros":                        {Axis{}, []float64{0, 0}, Span{0, 1}},
		"one value":                         {Axis{}, []float64{4, 4}, Span{0, 6}},
		"one negative value":                {Axis{}, []float64{-4}, Span{-6, -2}},
		"logarithmic takes what is above 0": {Axis{Log: true}, []float64{0, 2, 200}, Span{2, 200}},
		"logarithmic of zeros":              {Axis{Log: true}, []float64{0}, Span{0.1, 1}},
		"logarithmic of one value":          {Axis{Log: true}, []float64{8}, Span{4, 16}},
		"logarithmic without the dust":      {Axis{Log: true}, []float64{1e-12, 1}, Span{1e-9, 1}},
	} {
		if _, got := panelOf(c.axis, c.values...).Bounds(); got != c.want {
			t.Errorf("%s: %v, expected %v", name, got, c.want)
		}
	}
}

func TestBoundsCoverBands(t *testing.T) {
	p := panelOf(Axis{}, 3, 4)
	p.Series[0].Low, p.Series[0].High = []float64{-1, 3}, []float64{3, 9}
	x, y := p.Bounds()
	if (y != Span{-1, 9}) || (x != Span{1, 2}) {
		t.Errorf("x %v y %v", x, y)
	}
}

func TestAt(t *testing.T) {
	for _, c := range []struct {
		axis    Axis
		span    Span
		v, want float64
	}{
		{Axis{}, Span{2, 6}, 2, 0},
		{Axis{}, Span{2, 6}, 3, 0.25},
		{Axis{}, Span{2, 6}, 6, 1},
		{Axis{}, Span{2, 6}, 99, 1},
		{Axis{}, Span{2, 6}, -99, 0},
		{Axis{Log: true}, Span{1, 100}, 10, 0.5},
		{Axis{Log: true}, Span{1, 100}, 1000, 1},
		{Axis{Log: true}, Span{1, 100}, 0, 0},
		{Axis{Log: true}, Span{1, 100}, -5, 0},
		{Axis{Log: true}, Span{0.5, 100}, -0.3, 0},
		{Axis{Log: true}, Span{smallest, largest}, 1, 0.5},
		{Axis{}, Span{-largest, largest}, 0, 0.5},
	} {
		if got := c.axis.At(c.span, c.v); !(math.Abs(got-c.want) <= 1e-9) { // this is also true for NaN
			t.Errorf("%+v on %v: %v at %v, expected %v", c.axis, c.span, c.v, got, c.want)
		}
	}
}
