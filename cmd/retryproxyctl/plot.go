//go:build !small

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/ctl/plot/picture"
)

func init() { more = append(more, plotCommand) }

// job is the parsed arguments of plot.
type job struct {
	png, svg string
	size     picture.Size
}

func plotCommand(o *outside) *cobra.Command {
	j := job{size: picture.DefaultSize}
	c := &cobra.Command{
		Use:   "plot [--png FILE] [--svg FILE] [--size 900x540] <FILE",
		Short: "draw what plan and simulate print with --json, as PNG or SVG",
		Long: `Draws the figure of standard input: a JSON object with the member "figure", as
plan --json prints it. A picture's FILE may be - for standard output.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := j.check(); err != nil {
				return wrong(c, err)
			}
			return j.do(o.stdin, o.stdout)
		},
	}
	f := c.Flags()
	f.StringVar(&j.png, "png", "", "draw into this PNG `FILE`")
	f.StringVar(&j.svg, "svg", "", "draw into this SVG `FILE`")
	f.Func("size", "size of the picture in `pixels`, default 900x540", func(s string) error {
		size, err := parseSize(s)
		j.size = size
		return err
	})
	return c
}

func (j *job) check() error {
	switch {
	case j.png == "" && j.svg == "":
		return errors.New("nothing to draw: expected --png or --svg")
	case j.png == "-" && j.svg == "-":
		return errors.New("--png and --svg cannot both be -, standard output")
	}
	return j.size.Validate()
}

func parseSize(s string) (picture.Size, error) {
	var size picture.Size
	var rest string
	if n, _ := fmt.Sscanf(s, "%dx%d%s", &size.Width, &size.Height, &rest); n != 2 {
		return size, errors.New("expected WIDTHxHEIGHT, such as 900x540")
	}
	return size, nil
}

func (j *job) do(stdin io.Reader, stdout io.Writer) error {
	f, err := plot.Decode(stdin)
	if err != nil {
		return err
	}
	for _, p := range []struct {
		path string
		draw func(io.Writer, *plot.Figure, picture.Size) error
	}{{j.png, picture.PNG}, {j.svg, picture.SVG}} {
		if p.path == "" {
			continue
		}
		draw := func(w io.Writer) error { return p.draw(w, f, j.size) }
		if err := write(p.path, stdout, draw); err != nil {
			return err
		}
	}
	return nil
}

// write writes the output of draw to a file, completely or not at all. On an error, such as a full
// disk, an existing file stays.
func write(path string, stdout io.Writer, draw func(io.Writer) error) error {
	if path == "-" {
		return draw(stdout)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(file.Name()) }() // no longer there if all went well
	if err := errors.Join(draw(file), file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
