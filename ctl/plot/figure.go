package plot

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Figure is one picture. Call Validate before drawing one from elsewhere.
type Figure struct {
	Title   string  `json:"title,omitempty"`
	Columns int     `json:"columns,omitempty"` // panels side by side in a picture; 0 = 1. A terminal shows them one below the other.
	Panels  []Panel `json:"panels"`            // at least one
}

// Panel is a pair of axes with its series.
type Panel struct {
	Title  string   `json:"title,omitempty"`
	X      Axis     `json:"x"`
	Y      Axis     `json:"y"`
	Series []Series `json:"series"` // drawn in this order, the last one on top
	Marks  []Mark   `json:"marks,omitempty"`
}

// Series is one line. Series with the same name, also in different panels, have the same colour and
// one entry in the legend. So several runs of one thing can be series with one name.
type Series struct {
	Name string    `json:"name"`
	X    []float64 `json:"x"` // finite (at most 1e150), in the axis's unit; points are connected in this order
	Y    []float64 `json:"y"` // as many as X

	// Low and High bound a band around the line, drawn pale behind all lines. Both are nil, or both
	// have the length of X.
	Low  []float64 `json:"low,omitempty"`
	High []float64 `json:"high,omitempty"`
}

// Mark is a point on the X axis, or with To > At a range, that concerns all series, such as an
// outage.
type Mark struct {
	At    float64 `json:"at"`
	To    float64 `json:"to,omitempty"` // 0: a point
	Label string  `json:"label"`
}

// Limits of a figure, so that drawing one from elsewhere takes limited memory and time.
const (
	MaxPanels = 12
	MaxSeries = 64        // of a panel
	MaxMarks  = 32        // of a panel
	MaxPoints = 1_000_000 // of the figure
	MaxText   = 200       // characters of a title, name or label
)

// Validate returns an error that names everything that prevents drawing f.
func (f *Figure) Validate() error {
	var errs []error
	if len(f.Panels) == 0 || len(f.Panels) > MaxPanels {
		errs = append(errs, fmt.Errorf("%d panels, expected 1 to %d", len(f.Panels), MaxPanels))
	}
	if f.Columns < 0 || f.Columns > MaxPanels {
		errs = append(errs, fmt.Errorf("%d columns, expected 0 to %d", f.Columns, MaxPanels))
	}
	errs = append(errs, textError("title", f.Title))
	points := 0
	for i := range f.Panels {
		p := &f.Panels[i]
		if err := p.validate(); err != nil {
			errs = append(errs, fmt.Errorf("panel %d: %w", i+1, err))
		}
		for j := range p.Series {
			points += len(p.Series[j].X)
		}
	}
	if points > MaxPoints {
		errs = append(errs, fmt.Errorf("%d points, expected at most %d", points, MaxPoints))
	}
	return errors.Join(errs...)
}

func (p *Panel) validate() error {
	errs := []error{textError("title", p.Title), p.X.validate("x axis"), p.Y.validate("y axis")}
	if len(p.Series) == 0 || len(p.Series) > MaxSeries {
		errs = append(errs, fmt.Errorf("%d series, expected 1 to %d", len(p.Series), MaxSeries))
	}
	if len(p.Marks) > MaxMarks {
		errs = append(errs, fmt.Errorf("%d marks, expected at most %d", len(p.Marks), MaxMarks))
	}
	for i := range p.Series {
		if err := p.Series[i].validate(); err != nil {
			errs = append(errs, fmt.Errorf("series %d: %w", i+1, err))
		}
	}
	for i, m := range p.Marks {
		errs = append(errs, textError("mark", m.Label))
		if !finite(m.At) || !finite(m.To) || m.To != 0 && m.To < m.At {
			errs = append(errs, fmt.Errorf("mark %d: from %v to %v", i+1, m.At, m.To))
		}
	}
	return errors.Join(errs...)
}

func (s *Series) validate() error {
	errs := []error{textError("name", s.Name)}
	if s.Name == "" {
		errs = append(errs, errors.New("no name"))
	}
	if len(s.X) == 0 || len(s.Y) != len(s.X) {
		errs = append(errs, fmt.Errorf("%d x and %d y, expected as many of both and at least one", len(s.X), len(s.Y)))
	}
	if len(s.Low) != len(s.High) || s.hasBand() && len(s.Low) != len(s.X) {
		errs = append(errs, fmt.Errorf("%d low and %d high for %d points", len(s.Low), len(s.High), len(s.X)))
	}
	for _, values := range [][]float64{s.X, s.Y, s.Low, s.High} {
		for _, v := range values {
			if !finite(v) {
				return errors.Join(append(errs, fmt.Errorf("%v cannot be drawn", v))...)
			}
		}
	}
	return errors.Join(errs...)
}

func (s *Series) hasBand() bool { return len(s.Low) > 0 }

// textError returns an error for text that is too long or would break a line.
func textError(what, s string) error {
	if n := utf8.RuneCountInString(s); n > MaxText {
		return fmt.Errorf("%s of %d characters, expected at most %d", what, n, MaxText)
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r == utf8.RuneError || r >= 0x80 && r < 0xa0 {
			return fmt.Errorf("%s %q has a character that cannot be shown", what, s)
		}
	}
	return nil
}

// largest and smallest limit the values that can be drawn, so that sums, products and quotients of
// two values stay within the range of float64.
const (
	largest  = 1e150
	smallest = 1e-150
)

// finite is false for NaN too.
func finite(v float64) bool { return math.Abs(v) <= largest }

// Names returns the distinct names of the series in order of first appearance, which is the order
// of the legend and of the colours.
func (f *Figure) Names() []string {
	var names []string
	seen := map[string]bool{}
	for i := range f.Panels {
		for j := range f.Panels[i].Series {
			if name := f.Panels[i].Series[j].Name; !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}
