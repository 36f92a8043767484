package picture

import (
	"image/color"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/retryproxy/retryproxy/ctl/plot"
)

// look is the style of all series with a name.
type look struct {
	color  color.NRGBA
	dashes []vg.Length
}

// palette can be distinguished with every kind of colour vision. Source: P. Tol, "Colour Schemes",
// the scheme "bright" without its grey, plus black.
var palette = []color.NRGBA{
	{0x44, 0x77, 0xaa, 0xff}, // blue
	{0xee, 0x66, 0x77, 0xff}, // red
	{0x22, 0x88, 0x33, 0xff}, // green
	{0xcc, 0xbb, 0x44, 0xff}, // yellow
	{0xaa, 0x33, 0x77, 0xff}, // purple
	{0x66, 0xcc, 0xee, 0xff}, // cyan
	{0x22, 0x22, 0x22, 0xff}, // black
}

// If there are more names than colours, the colours repeat with dashes.
var dashes = [][]vg.Length{nil, {5, 2}, {1.5, 1.5}, {6, 2, 1.5, 2}}

func looksOf(f *plot.Figure) map[string]look {
	looks := map[string]look{}
	for i, name := range f.Names() {
		looks[name] = look{palette[i%len(palette)], dashes[i/len(palette)%len(dashes)]}
	}
	return looks
}

func (l look) line(width vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: l.color, Width: width, Dashes: l.dashes}
}

// path returns a series as points on a canvas.
func path(c *draw.Canvas, g *gonum.Plot, xs, ys []float64) []vg.Point {
	x, y := g.Transforms(c)
	points := make([]vg.Point, len(xs))
	for i := range xs {
		points[i] = vg.Point{X: x(xs[i]), Y: y(ys[i])}
	}
	return points
}

// band is the area between low and high.
type band struct {
	series *plot.Series
	look   look
}

func (b band) Plot(c draw.Canvas, g *gonum.Plot) {
	outline := path(&c, g, b.series.X, b.series.High)
	low := path(&c, g, b.series.X, b.series.Low)
	for i := len(low) - 1; i >= 0; i-- {
		outline = append(outline, low[i])
	}
	pale := b.look.color
	pale.A = 0x2a
	c.FillPolygon(pale, outline)
}

// curve is the line of a series, with marked points if there are few.
type curve struct {
	series *plot.Series
	look   look
}

func (l curve) Plot(c draw.Canvas, g *gonum.Plot) {
	points := path(&c, g, l.series.X, l.series.Y)
	style := l.look.line(lineWidth)
	c.StrokeLines(style, points)
	if len(points) > manyPoints {
		return
	}
	for _, p := range points {
		c.DrawGlyphNoClip(draw.GlyphStyle{Color: l.look.color, Radius: lineWidth * 1.4, Shape: draw.CircleGlyph{}}, p)
	}
}

// stretches shades the marks with a duration, as far as they are on the axis.
type stretches struct{ marks []plot.Mark }

func (s stretches) Plot(c draw.Canvas, g *gonum.Plot) {
	x, _ := g.Transforms(&c)
	for _, m := range s.marks {
		if m.To > m.At {
			left, right := x(m.At), x(m.To)
			c.FillPolygon(color.NRGBA{0, 0, 0, 0x12}, []vg.Point{{X: left, Y: c.Min.Y}, {X: right, Y: c.Min.Y}, {X: right, Y: c.Max.Y}, {X: left, Y: c.Max.Y}})
		}
	}
}

// marks draws the edges and labels of marks on top of everything else.
type marks struct{ marks []plot.Mark }

func (s marks) Plot(c draw.Canvas, g *gonum.Plot) {
	x, _ := g.Transforms(&c)
	edge := draw.LineStyle{Color: color.Gray{0x66}, Width: 0.7, Dashes: []vg.Length{3, 2}}
	for _, m := range s.marks {
		for _, at := range []float64{m.At, max(m.At, m.To)} {
			if at >= g.X.Min && at <= g.X.Max {
				c.StrokeLine2(edge, x(at), c.Min.Y, x(at), c.Max.Y)
			}
		}
		if m.At >= g.X.Min && m.At <= g.X.Max {
			label := style(textSize*0.9, false)
			label.YAlign = draw.YTop
			c.FillText(label, vg.Point{X: x(m.At) + 3, Y: c.Max.Y - 2}, m.Label)
		}
	}
}

// drawLegend draws the names in rows at the top of c and returns the rest of the canvas. A single
// name also needs a legend: it may be the only description of what is shown.
func drawLegend(c draw.Canvas, names []string, looks map[string]look) draw.Canvas {
	s := style(textSize, false)
	s.YAlign = draw.YCenter
	height := textSize * 1.7
	x, y := c.Min.X, c.Max.Y-height/2
	for _, name := range names {
		width := sample + 5 + s.Width(name)
		if x > c.Min.X && x+width > c.Max.X {
			x, y = c.Min.X, y-height
		}
		c.StrokeLine2(looks[name].line(lineWidth*1.4), x, y, x+sample, y)
		c.FillText(s, vg.Point{X: x + sample + 5, Y: y}, name)
		x += width + gap
	}
	return draw.Crop(c, 0, 0, 0, y-height/2-c.Max.Y-textSize/2)
}
