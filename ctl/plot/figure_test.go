package plot

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// waits returns a figure like the plan of two strategies.
func waits() *Figure {
	var retry, doubling, half, twice, fixed []float64
	for i := range 10 {
		w := 0.05 * math.Pow(2, float64(i))
		retry = append(retry, float64(i+1))
		doubling, half, twice = append(doubling, w), append(half, w/2), append(twice, w*2)
		fixed = append(fixed, 5)
	}
	return &Figure{Title: "Waits", Panels: []Panel{{
		Title:  "before each retry",
		X:      Axis{Label: "retry", Unit: Count},
		Y:      Axis{Label: "wait", Unit: Seconds, Log: true},
		Series: []Series{{Name: "doubling", X: retry, Y: doubling, Low: half, High: twice}, {Name: "fixed", X: retry, Y: fixed}},
		Marks:  []Mark{{At: 4, To: 6, Label: "outage"}},
	}}}
}

func TestValidateTakesWhatCanBeDrawn(t *testing.T) {
	if err := waits().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Figure)
		want  string
	}{
		"no panels":         {func(f *Figure) { f.Panels = nil }, "0 panels"},
		"many panels":       {func(f *Figure) { f.Panels = make([]Panel, MaxPanels+1) }, "13 panels"},
		"negative columns":  {func(f *Figure) { f.Columns = -1 }, "-1 columns"},
		"no series":         {func(f *Figure) { f.Panels[0].Series = nil }, "panel 1: 0 series"},
		"many series":       {func(f *Figure) { f.Panels[0].Series = make([]Series, MaxSeries+1) }, "65 series"},
		"no name":           {func(f *Figure) { f.Panels[0].Series[1].Name = "" }, "series 2: no name"},
		"no points":         {func(f *Figure) { f.Panels[0].Series[1] = Series{Name: "x"} }, "0 x and 0 y"},
		"fewer y than x":    {func(f *Figure) { f.Panels[0].Series[1].Y = []float64{1} }, "10 x and 1 y"},
		"half a band":       {func(f *Figure) { f.Panels[0].Series[0].High = nil }, "10 low and 0 high"},
		"short band":        {func(f *Figure) { s := &f.Panels[0].Series[0]; s.Low, s.High = s.Low[:3], s.High[:3] }, "3 low and 3 high for 10 points"},
		"not a number":      {func(f *Figure) { f.Panels[0].Series[1].Y[3] = math.NaN() }, "NaN cannot be drawn"},
		"infinite":          {func(f *Figure) { f.Panels[0].Series[1].X[3] = math.Inf(1) }, "+Inf cannot be drawn"},
		"infinite band":     {func(f *Figure) { f.Panels[0].Series[0].High[3] = math.Inf(1) }, "+Inf cannot be drawn"},
		"escape in a title": {func(f *Figure) { f.Title = "a\x1b[31m" }, "cannot be shown"},
		"delete in a title": {func(f *Figure) { f.Title = "a\x7f" }, "cannot be shown"},
		"line end in a name": {func(f *Figure) {
			f.Panels[0].Series[0].Name = "a\nb"
		}, "cannot be shown"},
		"long label":   {func(f *Figure) { f.Panels[0].X.Label = strings.Repeat("ä", MaxText+1) }, "x axis of 201 characters"},
		"unknown unit": {func(f *Figure) { f.Panels[0].Y.Unit = "metres" }, `unit "metres"`},
		"mark that ends before it begins": {func(f *Figure) {
			f.Panels[0].Marks[0].To = 3
		}, "mark 1: from 4 to 3"},
		"mark nowhere": {func(f *Figure) { f.Panels[0].Marks[0].At = math.NaN() }, "mark 1"},
		"many marks":   {func(f *Figure) { f.Panels[0].Marks = make([]Mark, MaxMarks+1) }, "33 marks"},
		"many points": {func(f *Figure) {
			long := make([]float64, MaxPoints)
			f.Panels[0].Series[1].X, f.Panels[0].Series[1].Y = long, long
		}, "1000010 points"},
	} {
		f := waits()
		c.spoil(f)
		if err := f.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, expected %q", name, err, c.want)
		}
	}
}

func TestNamesOnceInOrder(t *testing.T) {
	f := waits()
	second := f.Panels[0]
	second.Series = []Series{{Name: "third"}, {Name: "doubling"}}
	f.Panels = append(f.Panels, second)
	if got := f.Names(); !slices.Equal(got, []string{"doubling", "fixed", "third"}) {
		t.Error(got)
	}
}

func TestDecode(t *testing.T) {
	const good = `{"more": 1, "figure": {"title": "T", "panels": [{"x": {"unit": "count"}, "y": {"log": true}, "series": [{"name": "a", "x": [1, 2], "y": [3, 4]}]}]}}`
	f, err := Decode(strings.NewReader(good))
	if err != nil {
		t.Fatal(err)
	}
	if f.Title != "T" || !f.Panels[0].Y.Log || f.Panels[0].X.Unit != Count || f.Panels[0].Series[0].Y[1] != 4 {
		t.Errorf("%+v", f)
	}
	for bad, want := range map[string]string{
		``:                                       "no JSON object",
		`[]`:                                     "no JSON object",
		good + `{}`:                              "no JSON object",
		`{}`:                                     `member "figure"`,
		`{"figure": null}`:                       `member "figure"`,
		`{"figure": {}}`:                         "figure: 0 panels",
		`{"figure": {"titel": "x"}}`:             "titel",
		`{"figure": {"panels": [{"x": 1}]}}`:     "figure: json",
		strings.Replace(good, "[3, 4]", "[]", 1): "2 x and 0 y",
	} {
		if _, err := Decode(strings.NewReader(bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", bad, err, want)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestDecodeReadsABoundedAmount(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 256 MiB")
	}
	if _, err := Decode(endless{}); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Error(err)
	}
}
