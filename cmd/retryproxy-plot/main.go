// Command retryproxy-plot draws figures as PNG or SVG for the commands of retryproxy that plan and
// simulate. It reads their JSON output:
//
//	retryproxy plan --backoff full-jitter,additive --json | retryproxy-plot --png waits.png
//
// It is a separate command so that the sidecar does not contain a drawing library and fonts.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/retryproxy/retryproxy/internal/companion"
	"github.com/retryproxy/retryproxy/plot"
	"github.com/retryproxy/retryproxy/plot/picture"
)

// main connects run with the process.
func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

const usage = `Usage: retryproxy-plot [--png FILE] [--svg FILE] [--size 900x540] <FILE

Draws the figure of standard input: a JSON object with the member "figure", as
retryproxy plan --json prints it. A picture's FILE may be - for standard output.

Flags:
`

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// job is the parsed arguments.
type job struct {
	png, svg string
	size     picture.Size
	version  bool
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	j, err := parse(args, stdout)
	switch {
	case err == nil && j.version:
		_, err = fmt.Fprintf(stdout, "retryproxy-plot %s (%s)\n", version, runtime.Version())
	case err == nil:
		err = j.do(stdin, stdout)
	}
	return companion.ExitCode("retryproxy-plot", err, stderr)
}

// parse parses the arguments. If help is requested, it prints it and returns flag.ErrHelp.
func parse(args []string, stdout io.Writer) (*job, error) {
	j := &job{size: picture.DefaultSize}
	f := flag.NewFlagSet("retryproxy-plot", flag.ContinueOnError)
	f.StringVar(&j.png, "png", "", "draw into this PNG `FILE`")
	f.StringVar(&j.svg, "svg", "", "draw into this SVG `FILE`")
	f.BoolVar(&j.version, "version", false, "print the version")
	f.Func("size", "size of the picture in `pixels`, default 900x540", func(s string) error {
		size, err := parseSize(s)
		j.size = size
		return err
	})
	if err := companion.Parse(f, usage, args, stdout); err != nil || j.version {
		return j, err
	}
	if err := j.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", companion.ErrUsage, err)
	}
	return j, nil
}

func (j *job) check() error {
	switch {
	case j.png == "" && j.svg == "":
		return errors.New("nothing to draw: expected --png or --svg")
	case j.png == "-" && j.svg == "-":
		return errors.New("two pictures for standard output")
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
