package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/ctl/plot"
)

// small is large enough to show everything, and fast to draw.
var small = Size{480, 300}

// figure has everything that can be drawn: two panels, bands, marks, and zeros on a
// logarithmic axis.
func figure() *plot.Figure {
	var x, wait, low, high []float64
	for i := range 10 {
		w := 0.05 * math.Pow(2, float64(i))
		x = append(x, float64(i+1))
		wait, low, high = append(wait, w), append(low, 0), append(high, 2*w)
	}
	panel := func(log bool) plot.Panel {
		return plot.Panel{
			Title: "panel", X: plot.Axis{Label: "retry", Unit: plot.Count}, Y: plot.Axis{Label: "wait", Unit: plot.Seconds, Log: log},
			Series: []plot.Series{
				{Name: "doubling", X: x, Y: wait, Low: low, High: high},
				{Name: "zeros", X: x, Y: make([]float64, len(x))},
			},
			Marks: []plot.Mark{{At: 4, To: 6, Label: "outage"}, {At: -7, Label: "before"}, {At: 2, Label: "<&>"}},
		}
	}
	return &plot.Figure{Title: "A <title> & more", Columns: 2, Panels: []plot.Panel{panel(false), panel(true)}}
}

func drawPNG(t testing.TB, f *plot.Figure, s Size) image.Image {
	t.Helper()
	var b bytes.Buffer
	if err := PNG(&b, f, s); err != nil {
		t.Fatal(err)
	}
	m, err := png.Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPNGHasTheSizeAskedFor(t *testing.T) {
	for _, s := range []Size{small, {501, 333}, {333, 700}, {1600, 200}} {
		if got := drawPNG(t, figure(), s).Bounds().Size(); got != image.Pt(s.Width, s.Height) {
			t.Errorf("%v: %v", s, got)
		}
	}
}

// pixels counts the pixels of one colour.
func pixels(m image.Image, c color.NRGBA) int {
	plain := image.NewNRGBA(m.Bounds())
	draw.Draw(plain, m.Bounds(), m, image.Point{}, draw.Src)
	n := 0
	for p := plain.Pix; len(p) > 0; p = p[4:] {
		if p[0] == c.R && p[1] == c.G && p[2] == c.B && p[3] == c.A {
			n++
		}
	}
	return n
}

func TestPNGShowsEachSeriesInItsColour(t *testing.T) {
	f := figure()
	m := drawPNG(t, f, small)
	for i := range f.Names() {
		if n := pixels(m, palette[i]); n < 50 {
			t.Errorf("colour %d of %q: %d pixels", i, f.Names()[i], n)
		}
	}
	if n := pixels(m, palette[2]); n > 0 {
		t.Errorf("%d pixels of a colour that no series has", n)
	}
	if n := pixels(m, color.NRGBA{255, 255, 255, 255}); n < small.Width*small.Height/3 {
		t.Errorf("only %d white pixels", n)
	}
}

func TestPNGShadesBandsAndStretches(t *testing.T) {
	white := color.NRGBA{255, 255, 255, 255}
	bare := figure()
	for i := range bare.Panels {
		bare.Panels[i].Series[0].Low, bare.Panels[i].Series[0].High = nil, nil
	}
	banded := pixels(drawPNG(t, figure(), small), white)
	plain := pixels(drawPNG(t, bare, small), white)
	for i := range bare.Panels {
		bare.Panels[i].Marks = nil
	}
	empty := pixels(drawPNG(t, bare, small), white)
	if plain-banded < 5_000 || empty-plain < 5_000 {
		t.Errorf("%d white pixels with bands and a stretch, %d without bands, %d without both", banded, plain, empty)
	}
}

func TestSameFigureSameBytes(t *testing.T) {
	for name, drawAs := range formats {
		var a, b bytes.Buffer
		if err := errors.Join(drawAs(&a, figure(), small), drawAs(&b, figure(), small)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s: two drawings differ", name)
		}
	}
}

var formats = map[string]func(io.Writer, *plot.Figure, Size) error{"PNG": PNG, "SVG": SVG}

// svg is what tests need from a document.
type svg struct {
	XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
	Width   string   `xml:"width,attr"`
	Height  string   `xml:"height,attr"`
	View    string   `xml:"viewBox,attr"`
	texts   []string
}

func readSVG(t *testing.T, text []byte) svg {
	t.Helper()
	var s svg
	if err := xml.Unmarshal(text, &s); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "text" {
			var content string
			if err := d.DecodeElement(&content, &start); err != nil {
				t.Fatal(err)
			}
			s.texts = append(s.texts, content)
		}
	}
}

func TestSVGIsADocumentOfTheSizeAskedFor(t *testing.T) {
	for _, size := range []Size{DefaultSize, {640, 480}, {501, 333}, {1335, 1337}} {
		var b bytes.Buffer
		if err := SVG(&b, figure(), size); err != nil {
			t.Fatal(err)
		}
		s := readSVG(t, b.Bytes())
		if got := s.Width + " " + s.Height; got != fmt.Sprintf("%d %d", size.Width, size.Height) {
			t.Errorf("%v: %s", size, got)
		}
	}
}

func TestSVGHoldsEveryWord(t *testing.T) {
	var b bytes.Buffer
	if err := SVG(&b, figure(), DefaultSize); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(readSVG(t, b.Bytes()).texts, "\n")
	for _, want := range []string{"A <title> & more", "panel", "doubling", "zeros", "retry", "wait", "outage", "<&>", "10s", "100ms"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in %q", want, all)
		}
	}
	if strings.Contains(all, "before") {
		t.Error("a mark outside the axis is labelled")
	}
	if !bytes.Contains(b.Bytes(), []byte("Arial,Helvetica,sans-serif")) {
		t.Error("no font to fall back to")
	}
}

func TestRefuses(t *testing.T) {
	crowded := figure()
	for range plot.MaxPanels - len(crowded.Panels) {
		crowded.Panels = append(crowded.Panels, crowded.Panels[0])
	}
	wordy := figure()
	for i := range 60 {
		s := wordy.Panels[0].Series[0]
		s.Name = strings.Repeat("x", plot.MaxText-2) + fmt.Sprint(i)
		wordy.Panels[0].Series = append(wordy.Panels[0].Series, s)
	}
	for name, c := range map[string]struct {
		figure *plot.Figure
		size   Size
		want   string
	}{
		"no figure":             {&plot.Figure{}, DefaultSize, "0 panels"},
		"narrow":                {figure(), Size{MinSide - 1, 300}, "size 199x300"},
		"high":                  {figure(), Size{300, MaxSide + 1}, "size 300x4001"},
		"panels without room":   {crowded, Size{300, 300}, "too small"},
		"a legend without room": {wordy, DefaultSize, "too small"},
	} {
		for format, drawAs := range formats {
			if err := drawAs(io.Discard, c.figure, c.size); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, expected %q", name, format, err, c.want)
			}
		}
	}
}

func TestDrawsTheSmallestAndTheMost(t *testing.T) {
	one := figure()
	one.Panels = one.Panels[:1]
	many := figure()
	for range plot.MaxPanels - len(many.Panels) {
		many.Panels = append(many.Panels, many.Panels[0])
	}
	many.Columns = 3
	odd := figure()
	odd.Panels = append(odd.Panels, odd.Panels[0]) // leaves a panel empty
	point := &plot.Figure{Panels: []plot.Panel{{Series: []plot.Series{{Name: "point", X: []float64{1}, Y: []float64{1}}}}}}
	for format, drawAs := range formats {
		err := errors.Join(
			drawAs(io.Discard, one, Size{MinSide, MinSide}), drawAs(io.Discard, many, Size{600, 600}),
			drawAs(io.Discard, odd, small), drawAs(io.Discard, point, small))
		if err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestTellsOfAFailedWrite(t *testing.T) {
	for format, drawAs := range formats {
		if err := drawAs(full{}, figure(), small); !errors.Is(err, errFull) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func FuzzDraw(f *testing.F) {
	f.Add(1.0, 2.0, 3.0, true, "seconds", 300, 300)
	f.Add(-1e150, 1e150, 1e-150, false, "count", 900, 200)
	f.Add(0.0, 0.0, 0.0, true, "", 200, 200)
	f.Fuzz(func(t *testing.T, a, b, c float64, log bool, unit string, width, height int) {
		if width > 1000 || height > 1000 {
			return // slow, and no difference
		}
		axis := plot.Axis{Log: log, Unit: plot.Unit(unit)}
		figure := &plot.Figure{Panels: []plot.Panel{{
			X: axis, Y: plot.Axis{Log: log}, Series: []plot.Series{{Name: "n", X: []float64{a, b}, Y: []float64{b, c}, Low: []float64{a, a}, High: []float64{c, c}}},
			Marks: []plot.Mark{{At: 1, Label: "m"}},
		}}}
		var p, s bytes.Buffer
		errPNG, errSVG := PNG(&p, figure, Size{width, height}), SVG(&s, figure, Size{width, height})
		if (errPNG == nil) != (errSVG == nil) {
			t.Fatalf("PNG: %v, SVG: %v", errPNG, errSVG)
		}
		if errPNG != nil {
			return
		}
		readSVG(t, s.Bytes())
		if m, err := png.Decode(&p); err != nil || m.Bounds().Size() != image.Pt(width, height) {
			t.Fatalf("%v, %v", m.Bounds(), err)
		}
	})
}
