// Package draw writes reports and pictures to files. It is separate from [rig], because not every module that
// uses the rig has the dependencies of pictures.
package draw

import (
	"bytes"
	"os"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/ctl/plot/picture"
)

// Run is the counts of a run, second by second.
type Run struct {
	Name    string
	Seconds []rig.Counts
}

// Panel draws one number.
type Panel struct {
	Title, Label string
	Log          bool
	Value        func(rig.Counts) int
}

// Seconds draws all runs into the same panels.
func Seconds(title string, runs []Run, marks []plot.Mark, panels ...Panel) *plot.Figure {
	f := &plot.Figure{Title: title}
	for _, panel := range panels {
		p := plot.Panel{Title: panel.Title, X: plot.Axis{Label: "time", Unit: plot.Seconds}, Y: plot.Axis{Label: panel.Label, Unit: plot.Count, Log: panel.Log}, Marks: marks}
		for _, r := range runs {
			s := plot.Series{Name: r.Name}
			for i, second := range r.Seconds {
				if v := panel.Value(second); !panel.Log || v > 0 { // a logarithmic scale has no zero
					s.X, s.Y = append(s.X, float64(i)+0.5), append(s.Y, float64(v))
				}
			}
			p.Series = append(p.Series, s)
		}
		f.Panels = append(f.Panels, p)
	}
	return f
}

// Files are the files for report and picture.
type Files struct{ json, png string }

// Flags adds --json and --png.
func (o *Files) Flags(f *rig.Flags) {
	f.StringVar(&o.json, "json", "", "write all that was measured to this file")
	f.StringVar(&o.png, "png", "", "draw it into this file")
}

// Write writes the files. figure may be nil.
func (o *Files) Write(v any, figure *plot.Figure, size picture.Size) error {
	if err := rig.WriteJSON(o.json, v); err != nil {
		return err
	}
	if o.png == "" || figure == nil {
		return nil
	}
	if err := figure.Validate(); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := picture.PNG(&b, figure, size); err != nil {
		return err
	}
	return os.WriteFile(o.png, b.Bytes(), 0o666)
}
