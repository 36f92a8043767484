package plot

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/internal/terminal"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// band returns waits with one series and a linear axis.
func band() *Figure {
	f := waits()
	f.Panels[0].Series = f.Panels[0].Series[:1]
	f.Panels[0].Y.Log = false
	return f
}

func TestTextGolden(t *testing.T) {
	golden(t, "ascii.txt", waits().Text(terminal.Screen{Width: 80}))
	golden(t, "colour.txt", waits().Text(terminal.Screen{Width: 90, Height: 12, Color: true, Unicode: true}))
	golden(t, "nocolor.txt", waits().Text(terminal.Screen{Width: 70, Unicode: true}))
	golden(t, "band.txt", band().Text(terminal.Screen{Width: 80, Height: 10}))
}

var escapes = regexp.MustCompile("\x1b\\[[0-9]+m")

// checkText checks what Text promises for every screen.
func checkText(t *testing.T, f *Figure, s terminal.Screen) {
	t.Helper()
	text := f.Text(s)
	if !s.Color && strings.ContainsRune(text, 0x1b) {
		t.Fatalf("%+v: an escape code without colours", s)
	}
	plain := escapes.ReplaceAllString(text, "")
	if strings.ContainsRune(plain, 0x1b) {
		t.Fatalf("%+v: an escape code beside colours", s)
	}
	if !strings.HasSuffix(text, "\n") {
		t.Fatalf("%+v: the last line has no end", s)
	}
	for line := range strings.SplitSeq(plain, "\n") {
		if n := utf8.RuneCountInString(line); n > max(s.Width, 40) {
			t.Fatalf("%+v: %d columns: %s", s, n, line)
		}
	}
	if s.Unicode {
		return
	}
	for _, r := range plain {
		if r >= utf8.RuneSelf && !strings.ContainsRune(f.words(), r) {
			t.Fatalf("%+v: %q in ASCII", s, r)
		}
	}
}

// words returns all text in f.
func (f *Figure) words() string {
	b, err := json.Marshal(f)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestTextFitsEveryScreen(t *testing.T) {
	long := waits()
	long.Title = strings.Repeat("title ", 30)
	long.Panels[0].Series[0].Name = strings.Repeat("ö", MaxText)
	long.Panels[0].X.Label = strings.Repeat("x", MaxText)
	long.Panels[0].Y.Label = strings.Repeat("y", MaxText)
	long.Panels[0].Marks[0].Label = strings.Repeat("m", MaxText)
	for _, f := range []*Figure{waits(), band(), long} {
		for _, width := range []int{-1, 0, 39, 40, 41, 80, 137, 400, 1000} {
			for _, height := range []int{-5, 1, 4, 30} {
				for bits := range 4 {
					checkText(t, f, terminal.Screen{Width: width, Height: height, Color: bits&1 > 0, Unicode: bits&2 > 0})
				}
			}
		}
	}
}

// Without colours, no two lines may look alike.
func TestEveryLineHasItsOwnCharacterWithoutColours(t *testing.T) {
	text := waits().Text(terminal.Screen{Width: 80, Unicode: true})
	for _, want := range []string{"* doubling", "o fixed", "**", "ooo"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestMarksStandWhereTheyAre(t *testing.T) {
	f := waits()
	columns := func(marks ...Mark) int {
		f.Panels[0].Marks = marks
		drawn, _, _ := strings.Cut(f.Text(terminal.Screen{Width: 80}), "   *") // without the legend
		return strings.Count(drawn, ":")
	}
	none := columns()
	if one, two := columns(Mark{At: 4}), columns(Mark{At: 4, To: 6}); one <= none || two <= one {
		t.Errorf("%d cells of no mark, %d of one edge, %d of two", none, one, two)
	}
	if outside := columns(Mark{At: -5}, Mark{At: 99}); outside != none {
		t.Errorf("%d cells of marks beyond the axis", outside)
	}
}

func FuzzDecodeAndDraw(f *testing.F) {
	for _, figure := range []*Figure{waits(), band()} {
		b, err := json.Marshal(map[string]*Figure{"figure": figure})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b), 80)
	}
	f.Add(`{"figure": {"panels": [{"x": {}, "y": {"log": true, "unit": "seconds"}, "series": [{"name": "a", "x": [1e-150], "y": [-1]}]}]}}`, 40)
	f.Fuzz(func(t *testing.T, document string, width int) {
		figure, err := Decode(strings.NewReader(document))
		if err != nil {
			return
		}
		checkText(t, figure, terminal.Screen{Width: width, Color: width%2 == 0, Unicode: width%3 == 0})
	})
}
