// Package pictures passes a figure to retryproxy-plot, the command that draws PNG and SVG.
//
// It is a separate command because the drawing library and its fonts would enlarge the
// sidecar, on disk and in memory; see docs/decisions/0004-plots.md.
package pictures

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"strings"

	"github.com/retryproxy/retryproxy/internal/companion"
	"github.com/retryproxy/retryproxy/plot"
)

// Command is the name of the command that draws.
const Command = "retryproxy-plot"

// ErrNoCommand is returned by Draw if that command is not found.
var ErrNoCommand = errors.New(Command + " was not found")

// Wanted is the set of pictures that a user requests. The zero value requests none.
type Wanted struct {
	PNG, SVG string // files, "" for none
	Size     string // WIDTHxHEIGHT in pixels; "" means the command's default
}

// Flags adds --png, --svg and --size.
func (w *Wanted) Flags(f *flag.FlagSet) {
	f.StringVar(&w.PNG, "png", "", "draw into this PNG `FILE` instead of printing")
	f.StringVar(&w.SVG, "svg", "", "draw into this SVG `FILE` instead of printing")
	f.StringVar(&w.Size, "size", "", "size of the picture in pixels, such as `900x540`")
}

// Any reports whether there is something to draw.
func (w *Wanted) Any() bool { return w.PNG != "" || w.SVG != "" }

// args returns the arguments of the drawing command.
func (w *Wanted) args() []string {
	var args []string
	for _, a := range []struct{ name, value string }{{"--png", w.PNG}, {"--svg", w.SVG}, {"--size", w.Size}} {
		if a.value != "" {
			args = append(args, a.name, a.value)
		}
	}
	return args
}

// Draw runs retryproxy-plot, which it looks for in the directory of this executable, then
// in PATH. If it is missing, the error matches ErrNoCommand and explains how to continue. The
// command's output on standard error becomes the error. Draw waits for its end.
func (w *Wanted) Draw(ctx context.Context, f *plot.Figure) error {
	if err := f.Validate(); err != nil {
		return err
	}
	program, err := companion.Find(Command)
	if err != nil {
		return fmt.Errorf("%w beside this command or in PATH; install it with\n  go install github.com/retryproxy/retryproxy/cmd/%s@latest\nor print with --json, and pipe that into %s where it is", ErrNoCommand, Command, Command)
	}
	figure, err := json.Marshal(map[string]*plot.Figure{"figure": f})
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	c := exec.CommandContext(ctx, program, w.args()...)
	c.Stdin, c.Stderr = bytes.NewReader(figure), &stderr
	if err := c.Run(); err != nil {
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return errors.New(text)
		}
		return fmt.Errorf("%s: %w", program, err)
	}
	return nil
}
