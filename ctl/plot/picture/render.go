package picture

import (
	"errors"
	"image/color"
	"math"

	xfont "golang.org/x/image/font"
	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/retryproxy/retryproxy/ctl/plot"
)

// Lengths in points of 1/72 inch.
const (
	margin    = vg.Length(9)
	titleSize = vg.Length(12)
	textSize  = vg.Length(9)
	lineWidth = vg.Length(1.6)
	sample    = vg.Length(18) // a line in the legend
	gap       = vg.Length(14) // between entries of the legend, and between panels
	header    = vg.Length(16) // above a panel
)

// The approximate number of ticks of an axis, and how much of its length is free above the highest
// point, so that the edge does not cut it off.
const (
	xTicks   = 9
	yTicks   = 8
	headroom = 0.03
)

// manyPoints is the number of points from which they are not marked: the marks would form a thick
// line.
const manyPoints = 40

var (
	ink  = color.Gray{0x22}
	pale = color.Gray{0xdd}
)

func style(size vg.Length, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = xfont.WeightBold
	}
	return text.Style{Color: ink, Font: f, Handler: gonum.DefaultTextHandler}
}

// errSmall means that the legend or the panels leave no room for lines.
var errSmall = errors.New("the picture is too small for its legend and panels")

// The minimum size of a panel with its labels, in points.
const (
	leastWidth  = vg.Length(110)
	leastHeight = vg.Length(80)
)

// render draws title, legend and panels from top to bottom.
func render(c draw.Canvas, f *plot.Figure) error {
	looks := looksOf(f)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	if f.Title != "" {
		s := style(titleSize, true)
		s.YAlign = draw.YTop
		c.FillText(s, vg.Point{X: c.Min.X, Y: c.Max.Y}, f.Title)
		c = draw.Crop(c, 0, 0, 0, -titleSize*1.6)
	}
	return drawPanels(drawLegend(c, f.Names(), looks), f, looks)
}

func drawPanels(c draw.Canvas, f *plot.Figure, looks map[string]look) error {
	columns := min(max(f.Columns, 1), len(f.Panels))
	rows := (len(f.Panels) + columns - 1) / columns
	if room := c.Size(); room.X < leastWidth*vg.Length(columns) || room.Y < leastHeight*vg.Length(rows) {
		return errSmall
	}
	grid := make([][]*gonum.Plot, rows)
	for i := range grid {
		grid[i] = make([]*gonum.Plot, columns)
	}
	for i := range f.Panels {
		grid[i/columns][i%columns] = panel(&f.Panels[i], looks)
	}
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: gap, PadY: gap + header, PadTop: header}
	canvases := gonum.Align(grid, tiles, c)
	for i := range f.Panels {
		p, on := grid[i/columns][i%columns], canvases[i/columns][i%columns]
		p.Draw(on)
		drawHeader(on, p.DataCanvas(on).Min.X, &f.Panels[i])
	}
	return nil
}

// drawHeader writes the title and the label of the Y axis above a panel. A vertical label beside
// the axis might not fit.
func drawHeader(c draw.Canvas, x vg.Length, p *plot.Panel) {
	bold, plain := style(textSize*1.1, true), style(textSize, false)
	at := vg.Point{X: x, Y: c.Max.Y + header/3}
	if p.Title != "" {
		c.FillText(bold, at, p.Title)
		at.X += bold.Width(p.Title) + gap/2
	}
	c.FillText(plain, at, p.Y.Label)
}

// panel returns one pair of axes and its content, lowest layer first.
func panel(p *plot.Panel, looks map[string]look) *gonum.Plot {
	g := gonum.New()
	x, y := p.Bounds()
	if p.Y.Log {
		y.High *= math.Pow(y.High/y.Low, headroom)
	} else {
		y.High += (y.High - y.Low) * headroom
	}
	setAxis(&g.X, &p.X, x, xTicks)
	setAxis(&g.Y, &p.Y, y, yTicks)
	g.Y.Label.Text = "" // drawHeader draws it
	lines := plotter.NewGrid()
	lines.Vertical.Color, lines.Horizontal.Color = pale, pale
	lines.Vertical.Width, lines.Horizontal.Width = 0.5, 0.5
	g.Add(stretches{p.Marks}, lines)
	for i := range p.Series {
		if s := &p.Series[i]; len(s.Low) > 0 {
			g.Add(band{s, looks[s.Name]})
		}
	}
	for i := range p.Series {
		s := &p.Series[i]
		g.Add(curve{s, looks[s.Name]})
	}
	g.Add(marks{p.Marks})
	return g
}

// setAxis sets our spans, scales and ticks: the library's own logarithm panics at 0, and it has no
// durations.
func setAxis(g *gonum.Axis, a *plot.Axis, s plot.Span, ticks int) {
	g.Min, g.Max = s.Low, s.High
	g.Scale = scale{a}
	g.Padding = 0
	g.LineStyle.Width, g.LineStyle.Color = 0.8, ink
	g.Tick.LineStyle = g.LineStyle
	g.Tick.Length = 4
	g.Tick.Marker = ticker{a, ticks}
	label, tick := &g.Label.TextStyle, &g.Tick.Label
	label.Font, label.Color = style(textSize, false).Font, ink
	tick.Font, tick.Color = style(textSize*0.95, false).Font, ink
	g.Label.Text, g.Label.Padding = a.Label, 3
}

type scale struct{ axis *plot.Axis }

// Normalize returns 0 for the lower end and 1 for the upper one.
func (s scale) Normalize(low, high, v float64) float64 {
	return s.axis.At(plot.Span{Low: low, High: high}, v)
}

type ticker struct {
	axis *plot.Axis
	n    int
}

func (t ticker) Ticks(low, high float64) []gonum.Tick {
	ours := t.axis.Ticks(plot.Span{Low: low, High: high}, t.n)
	ticks := make([]gonum.Tick, len(ours))
	for i, tick := range ours {
		ticks[i] = gonum.Tick{Value: tick.Value, Label: tick.Label}
	}
	return ticks
}
