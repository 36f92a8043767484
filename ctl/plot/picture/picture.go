// Package picture draws a plot.Figure as PNG or SVG.
//
// It is separate from package plot because the drawing library and its fonts take several
// megabytes, which no serving process should contain. A test of cmd/retryproxy checks that. See
// docs/decisions/0018-small-sidecar.md.
//
// The same figure yields the same bytes. Both functions are safe for concurrent use, also with the
// same figure.
package picture

import (
	"bytes"
	"fmt"
	"image/png"
	"io"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/retryproxy/retryproxy/ctl/plot"
)

// Size is the size of a picture in pixels; for SVG a pixel is 1/96 inch.
type Size struct{ Width, Height int }

// DefaultSize is the default size of a picture.
var DefaultSize = Size{900, 540}

// Limits of sizes.
const (
	MinSide = 200
	MaxSide = 4000
)

// dpi is the CSS definition of a pixel, so that both formats look alike.
const dpi = 96

// Validate returns an error if s is out of range.
func (s Size) Validate() error {
	for _, side := range []int{s.Width, s.Height} {
		if side < MinSide || side > MaxSide {
			return fmt.Errorf("size %dx%d: expected %d to %d pixels each way", s.Width, s.Height, MinSide, MaxSide)
		}
	}
	return nil
}

func (s Size) points() (w, h vg.Length) {
	return vg.Length(s.Width) * vg.Inch / dpi, vg.Length(s.Height) * vg.Inch / dpi
}

// PNG writes f as an image of exactly that size. It returns an error if f or s is invalid, if s is
// too small for the content of f, or if w fails.
func PNG(w io.Writer, f *plot.Figure, s Size) error {
	if err := check(f, s); err != nil {
		return err
	}
	width, height := s.points()
	c := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))
	if err := render(draw.New(c), f); err != nil {
		return err
	}
	e := png.Encoder{CompressionLevel: png.BestCompression}
	return e.Encode(w, c.Image())
}

// SVG writes f as an SVG 1.1 document of that size. The library rounds the size and names a single
// font, so both are replaced here. Text stays text, in the first available sans-serif font; its
// widths are those of Liberation Sans and Arial. Errors are those of PNG.
func SVG(w io.Writer, f *plot.Figure, s Size) error {
	if err := check(f, s); err != nil {
		return err
	}
	width, height := s.points()
	c := vgsvg.New(width, height)
	if err := render(draw.New(c), f); err != nil {
		return err
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	text := strings.Replace(b.String(), fmt.Sprintf(`width="%.5gpt" height="%.5gpt"`, width, height), fmt.Sprintf(`width="%d" height="%d"`, s.Width, s.Height), 1)
	_, err := io.WriteString(w, strings.ReplaceAll(text, "font-family:Liberation Sans;", "font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;"))
	return err
}

func check(f *plot.Figure, s Size) error {
	if err := f.Validate(); err != nil {
		return err
	}
	return s.Validate()
}
