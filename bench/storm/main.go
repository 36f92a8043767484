package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/retryproxy/retryproxy/bench/internal/show"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// A process is the server when its first argument and its environment say so.
const (
	roleServer   = "server"
	roleDraw     = "draw"
	roleVariable = "STORM_ROLE"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var err error
	switch {
	case len(args) > 0 && args[0] == roleServer:
		err = serve(args[1:], stdin, stdout, stderr)
	case len(args) > 0 && args[0] == roleDraw:
		err = draw(args[1:], stderr)
	default:
		o, bad := parse(args, stderr)
		if errors.Is(bad, flag.ErrHelp) {
			return exitOK
		}
		if bad != nil {
			fmt.Fprintln(stderr, "storm:", bad)
			return exitUsage
		}
		err = storms(ctx, args, o, stdout, stderr)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintln(stderr, "storm:", err)
		return exitFailed
	}
	return exitOK
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
