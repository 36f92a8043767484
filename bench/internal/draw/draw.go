// Package draw writes what a judge measured into files, with pictures. It is apart from [rig], since
// not every module that uses the rig has what pictures need.
package draw

import (
	"bytes"
	"os"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// Files are where a judge writes what it measured.
type Files struct{ json, png string }

// Flags adds --json and --png.
func (o *Files) Flags(f *rig.Flags) {
	f.StringVar(&o.json, "json", "", "write all that was measured to this file")
	f.StringVar(&o.png, "png", "", "draw it into this file")
}

// Write writes the files that were asked for. figure may be nil.
func (o *Files) Write(v any, figure *plot.Figure, size picture.Size) error {
	if err := rig.WriteJSON(o.json, v); err != nil {
		return err
	}
	if o.png == "" || figure == nil {
		return nil
	}
	return PNG(o.png, figure, size)
}

// PNG draws a figure into a file.
func PNG(file string, f *plot.Figure, size picture.Size) error {
	if err := f.Validate(); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := picture.PNG(&b, f, size); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o666)
}
