package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"syscall"

	"github.com/retryproxy/retryproxy/internal/demo"
)

var demoCommand = command{
	name:    "demo",
	args:    "[--for 10s] [--rate 50] [--seed 1]",
	summary: "see it work: a flaky upstream, retryproxy in front of it, and a little traffic",
	details: `Sends the same requests to an upstream that fails on purpose and to retryproxy in
front of it, and compares what clients saw. It needs no settings. It runs until Ctrl-C,
or for as long as --for says.`,
	run: runDemo,
}

func runDemo(ctx context.Context, c *call) error {
	o := demo.Options{Out: c.stdout, Build: build()}
	f := c.flags()
	f.DurationVar(&o.Length, "for", 0, "how long to run; 0 means until Ctrl-C")
	f.IntVar(&o.Rate, "rate", 50, fmt.Sprintf("requests per second to each side, 1 to %d", demo.MaxRate))
	f.Uint64Var(&o.Seed, "seed", 1, "the same seed gives the same failures")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	switch {
	case o.Length < 0:
		return c.usage(f, errors.New("--for: expected 0 or more"))
	case o.Rate < 1 || o.Rate > demo.MaxRate:
		return c.usage(f, fmt.Errorf("--rate: expected 1 to %d", demo.MaxRate))
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	return demo.Run(ctx, o)
}

// untilSignal returns a context that ends at SIGTERM or SIGINT.
func untilSignal(ctx context.Context) (context.Context, func()) {
	return signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
}
