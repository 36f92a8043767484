package plot

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// drawing is one panel on a screen: a grid of cells, with one dot each or, with Braille, two by
// four.
type drawing struct {
	panel  *Panel
	screen screen
	box    box
	x, y   Span

	margin        int // columns left of the grid: labels, a space, the axis
	columns, rows int
	dotsX, dotsY  int     // per cell: 1 and 1, or 2 and 4
	ink           []inked // rows x columns
	yLabels       []string
	lines         []line
	legend        []legendEntry
}

// inked is a cell: the Braille dots set in it, and the line that they belong to.
type inked struct {
	dots   uint8
	series int // index of a line + 1; 0 = empty
	mark   bool
}

// line is a line to draw: a series, or an edge of its band.
type line struct {
	x, y   []float64
	series int // index of its name in the figure
	glyph  byte
}

type legendEntry struct {
	symbol, name string
	series       int
}

func newDrawing(p *Panel, s screen, colours map[string]int) *drawing {
	if len(p.Series) > 1 {
		p = p.withoutBands()
	}
	d := &drawing{panel: p, screen: s, box: s.box(), rows: s.Height, dotsX: 1, dotsY: 1}
	d.x, d.y = p.Bounds()
	d.yLabels = d.labelRows()
	for _, label := range d.yLabels {
		d.margin = max(d.margin, utf8.RuneCountInString(label))
	}
	d.margin += 2
	d.columns = s.Width - d.margin - 2 // a label of the X axis may extend beyond
	d.ink = make([]inked, d.rows*d.columns)
	d.collect(colours)
	if s.Unicode && (s.Color || len(d.legend) == 1) {
		d.dotsX, d.dotsY = 2, 4
		for i := range d.legend {
			d.legend[i].symbol = d.box.line
		}
	}
	return d
}

// labelRows returns the label of each row.
func (d *drawing) labelRows() []string {
	labels := make([]string, d.rows)
	for _, t := range d.panel.Y.Ticks(d.y, d.rows*2/5) {
		if row := d.row(t.Value); labels[row] == "" {
			labels[row] = t.Label
		}
	}
	return labels
}

func (d *drawing) row(v float64) int {
	return int(math.Round((1 - d.panel.Y.At(d.y, v)) * float64(d.rows-1)))
}

func (d *drawing) column(v float64) int {
	return int(math.Round(d.panel.X.At(d.x, v) * float64(d.columns-1)))
}

// withoutBands returns p without bands if it has several series, because their edges would hide
// each other.
func (p *Panel) withoutBands() *Panel {
	bare := *p
	bare.Series = slices.Clone(p.Series)
	for i := range bare.Series {
		bare.Series[i].Low, bare.Series[i].High = nil, nil
	}
	return &bare
}

// collect collects the lines of the panel and its legend.
func (d *drawing) collect(colours map[string]int) {
	entries := map[string]bool{}
	add := func(s *Series, name string, y []float64, offset int) {
		series := colours[s.Name] + offset
		glyph := glyphs[series%len(glyphs)]
		d.lines = append(d.lines, line{s.X, y, series, glyph})
		if !entries[name] {
			entries[name] = true
			d.legend = append(d.legend, legendEntry{string(glyph), name, series})
		}
	}
	all := d.panel.Series
	if all[0].hasBand() {
		s := &all[0]
		add(s, s.Name+", longest", s.High, 1)
		add(s, s.Name+", shortest", s.Low, 2)
		add(s, s.Name+", mean", s.Y, 0)
		return
	}
	for i := range all {
		add(&all[i], all[i].Name, all[i].Y, 0)
	}
}

// draw fills the grid: marks first, then the lines in order.
func (d *drawing) draw() {
	for _, m := range d.panel.Marks {
		d.mark(m.At)
		if m.To > m.At {
			d.mark(m.To)
		}
	}
	for i := range d.lines {
		d.polyline(i)
	}
}

func (d *drawing) mark(at float64) {
	if at < d.x.Low || at > d.x.High {
		return
	}
	column := d.column(at)
	for row := range d.rows {
		d.ink[row*d.columns+column].mark = true
	}
}

// polyline connects the points of a line.
func (d *drawing) polyline(index int) {
	l := &d.lines[index]
	width, height := d.columns*d.dotsX-1, d.rows*d.dotsY-1
	var fromX, fromY int
	for i := range l.x {
		x := int(math.Round(d.panel.X.At(d.x, l.x[i]) * float64(width)))
		y := int(math.Round((1 - d.panel.Y.At(d.y, l.y[i])) * float64(height)))
		if i == 0 {
			fromX, fromY = x, y
		}
		d.segment(fromX, fromY, x, y, index)
		fromX, fromY = x, y
	}
}

// segment sets the dots between two points (Bresenham's algorithm).
func (d *drawing) segment(x, y, toX, toY, index int) {
	dx, stepX := abs(toX-x), sign(toX-x)
	dy, stepY := -abs(toY-y), sign(toY-y)
	for e := dx + dy; ; {
		d.dot(x, y, index)
		if x == toX && y == toY {
			return
		}
		double := 2 * e
		if double >= dy {
			e += dy
			x += stepX
		}
		if double <= dx {
			e += dx
			y += stepY
		}
	}
}

// braille maps row and column of a dot to the bit of U+2800 (Unicode standard, block Braille
// Patterns).
var braille = [4][2]uint8{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

// dot sets a dot; a cell belongs to the line drawn last.
func (d *drawing) dot(x, y, index int) {
	cell := &d.ink[y/d.dotsY*d.columns+x/d.dotsX]
	cell.series = index + 1
	cell.dots |= braille[y%d.dotsY][x%d.dotsX]
}

// cells returns one row of the grid.
func (d *drawing) cells(row int) string {
	var b strings.Builder
	ink := d.ink[row*d.columns:][:d.columns]
	for from := 0; from < len(ink); {
		to, series := from, ink[from].series // a sequence of one colour
		var run strings.Builder
		for ; to < len(ink) && ink[to].series == series; to++ {
			run.WriteString(d.cell(&ink[to]))
		}
		if series > 0 {
			b.WriteString(d.screen.paint(run.String(), d.lines[series-1].series))
		} else {
			b.WriteString(run.String())
		}
		from = to
	}
	return b.String()
}

func (d *drawing) cell(c *inked) string {
	switch {
	case c.series > 0 && d.dotsX > 1:
		return string(rune(0x2800 + int(c.dots)))
	case c.series > 0:
		return string(d.lines[c.series-1].glyph)
	case c.mark:
		return d.box.mark
	}
	return " "
}

func abs(n int) int { return max(n, -n) }

func sign(n int) int {
	switch {
	case n > 0:
		return 1
	case n < 0:
		return -1
	}
	return 0
}
