package main

import (
	"context"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/top"
)

var topCommand = command{
	name:    "top",
	args:    "[--every 1s] [--json] [--address HOST:PORT] [--timeout 2s]",
	summary: "show what a running retryproxy does, like its status page",
	details: `Shows routes, upstreams and the last failed requests, now and over the last five
minutes, and what its columns and marks mean. A terminal is refreshed every second
until Ctrl-C. Otherwise, or with --json, it prints once. It respects NO_COLOR.`,
	run: runTop,
}

func runTop(ctx context.Context, c *call) error {
	f := c.flags()
	every := f.Duration("every", time.Second, "refresh interval on a terminal, at least 100ms")
	asJSON := f.Bool("json", false, "print everything as JSON, once")
	ask, err := c.parseAsk(f)
	if err != nil {
		return err
	}
	body, err := top.Look(ctx, ask)
	switch {
	case err != nil:
		return err
	case *asJSON:
		fmt.Fprintln(c.stdout, body)
		return nil
	}
	screen := top.Screen{Out: c.stdout, Getenv: c.getenv}
	if !terminal.Is(c.stdout) || c.getenv("TERM") == "dumb" {
		return screen.Draw(body)
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return screen.Watch(ctx, ask, body, *every)
}
