package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/retryproxy/retryproxy/bench/internal/command"
	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// A process is the server when its first argument and its environment say so.
const (
	roleServer   = "server"
	roleDraw     = "draw"
	roleVariable = "STORM_ROLE"
)

func main() {
	command.Main("storm", run)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) > 0 && args[0] == roleServer:
		return serve(args[1:], os.Stdin, stdout, stderr)
	case len(args) > 0 && args[0] == roleDraw:
		return draw(args[1:], stderr)
	}
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	return storms(ctx, args, o, stdout, stderr)
}

// storms plays all runs that were asked for.
func storms(ctx context.Context, args []string, o *options, stdout, stderr io.Writer) error {
	var runs []*runResult
	told := &progress{Progress: show.NewProgress(stderr)}
	for n := range o.runs {
		for _, way := range o.through {
			told.name = way
			r, err := play(ctx, way, o, o.seed+uint64(n), told)
			if err != nil {
				return fmt.Errorf("%s: %w", way, err)
			}
			r.table(stdout)
			fmt.Fprintf(stdout, "%s: %s\n", r.title(), &r.Verdict)
			fmt.Fprintf(stdout, "the same in virtual time: %s\n", &r.Virtual)
			fmt.Fprintf(stdout, "live instead of virtual: %s\n\n", r.Verdict.against(&r.Virtual))
			runs = append(runs, r)
		}
	}
	d := newDocument(args, o.proxy, runs)
	if o.json != "" {
		if err := show.JSON(o.json, d); err != nil {
			return err
		}
	}
	if o.png != "" {
		return show.PNG(o.png, d.Figure, pictureSize)
	}
	return nil
}

// draw is the role that draws the runs of several files over each other.
func draw(args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("storm draw", flag.ContinueOnError)
	f.SetOutput(stderr)
	png := f.String("png", "storm.png", "the picture")
	if err := f.Parse(args); err != nil {
		return err
	}
	var runs []*runResult
	for _, file := range f.Args() {
		b, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var d document
		if err := json.Unmarshal(b, &d); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		runs = append(runs, d.Runs...)
	}
	return show.PNG(*png, figure(runs), pictureSize)
}
