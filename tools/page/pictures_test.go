package page

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
)

var picturesDir = flag.String("pictures", "", "directory to write page-*.png to; empty takes none")

// maxPicture is the maximum size of a picture in bytes.
const maxPicture = 100_000

// TestPictures takes pictures of two minutes with errors, an outage of eight seconds, and the
// recovery.
func TestPictures(t *testing.T) {
	if *picturesDir == "" {
		t.Skip("-pictures was not given")
	}
	u := startUpstream(t)
	p := startProxy(t, environment(u)...)
	p.drive(t, usual...)
	time.Sleep(100 * time.Second)
	u.takeAway()
	time.Sleep(8 * time.Second)
	down := open(t, p, 1280, 900, "dark")
	down.await("open breaker", `document.querySelector('#upstreams .breaker.open, #upstreams .breaker.half_open') !== null`)
	down.await("its history", `document.querySelectorAll('#upstreams svg.strip rect.open').length > 0`)
	down.picture("page-open.png", 900)
	u.open()
	time.Sleep(45 * time.Second)
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			b := open(t, p, width, 900, scheme)
			b.await("requests", `document.querySelectorAll('#slow tbody tr').length > 2`)
			time.Sleep(3 * time.Second)
			b.picture(fmt.Sprintf("page-%d-%s.png", width, scheme), map[int64]float64{1280: 1000, 390: 1500}[width])
		}
	}
}

// picture writes the top of the page, with the given height in pixels.
func (b *tab) picture(name string, height float64) {
	b.t.Helper()
	width := is[float64](b, `innerWidth`)
	beyond := true
	shot := call(b, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &beyond, Clip: &page.Viewport{Width: width, Height: height, Scale: 1}})
	decoded, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, reduce(decoded)); err != nil {
		b.t.Fatal(err)
	}
	if small.Len() > maxPicture {
		b.t.Errorf("%s: %d bytes", name, small.Len())
	}
	if err := os.WriteFile(filepath.Join(*picturesDir, name), small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// reduce keeps the most frequent colours, saturated ones before greys, and maps every other colour
// to the nearest of them. Apart from the edges of letters, a page has few colours.
func reduce(from image.Image) *image.Paletted {
	const colours = 224
	often := map[color.RGBA]int{}
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA) }
	area := from.Bounds()
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			often[at(x, y)]++
		}
	}
	var all []color.RGBA
	for c := range often {
		all = append(all, c)
	}
	weight := func(c color.RGBA) int { return often[c] * (16 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B))) }
	slices.SortFunc(all, func(a, b color.RGBA) int {
		if d := weight(b) - weight(a); d != 0 {
			return d
		}
		return slices.Compare([]uint8{a.R, a.G, a.B}, []uint8{b.R, b.G, b.B})
	})
	palette := color.Palette{}
	for _, c := range all[:min(len(all), colours)] {
		palette = append(palette, c)
	}
	to, nearest := image.NewPaletted(area, palette), map[color.RGBA]uint8{}
	for y := area.Min.Y; y < area.Max.Y; y++ {
		for x := area.Min.X; x < area.Max.X; x++ {
			c := at(x, y)
			i, known := nearest[c]
			if !known {
				i = uint8(palette.Index(c))
				nearest[c] = i
			}
			to.SetColorIndex(x, y, i)
		}
	}
	return to
}
