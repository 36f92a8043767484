package main

import (
	"context"
	"io"

	"github.com/retryproxy/retryproxy/internal/demo"
	"github.com/retryproxy/retryproxy/internal/serve"
)

var demoCommand = command{
	name:    "demo",
	args:    "[--for 10s] [--rate 50] [--seed 1]",
	summary: "see it work: a flaky upstream, retryproxy before it, and a little traffic",
	details: `Needs no settings. Runs until Ctrl-C, or for as long as --for says.`,
	run: func(ctx context.Context, c *call) error {
		ctx, stop := c.untilSignal(ctx)
		defer stop()
		switch code := runDemo(ctx, c.args, c.stdout, c.stderr); code {
		case exitOK:
			return nil
		case exitUsage:
			return errUsage
		}
		return errReported
	},
}

// untilSignal ends the context at SIGTERM or SIGINT.
func (o *outside) untilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if o.signals == nil {
		return ctx, cancel
	}
	signals, stop := o.signals()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s := <-signals:
				if serve.IsEnd(s) {
					cancel()
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
		stop()
	}
}

// runDemo gives the demo what a serving process would have.
func runDemo(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return demo.Run(ctx, demo.Options{Args: args, Stdout: stdout, Stderr: stderr, Metrics: serve.NewMetrics(build().forServe())})
}
