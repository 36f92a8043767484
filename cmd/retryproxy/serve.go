package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/assemble"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/memlimit"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

var serveCommand = command{
	name:    "serve",
	summary: "forward requests; what retryproxy does without a command",
	details: `Reads its settings from RETRYPROXY_* variables (docs/settings.md) and forwards
requests until SIGTERM or SIGINT. It then ends in order: /readyz fails, after
RETRYPROXY_DRAIN_DELAY running requests have RETRYPROXY_DRAIN_TIMEOUT to end. A
second such signal ends it at once. SIGHUP reads the settings file and the
certificates again.`,
	run: runServe,
}

func runServe(ctx context.Context, c *call) error {
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	if err := becomeTracing(c); err != nil {
		fmt.Fprintf(c.stderr, "retryproxy: %s cannot be run, so no spans are made: %v\n", tracingProgram, err)
	}
	s, problems := settings.Load(c.env)
	if problems.Err() != nil {
		return c.notStarted(problems)
	}
	problems = append(problems, traceProblems(c.outside)...)
	memory := memlimit.Apply(c.getenv("GOMEMLIMIT"))
	a, err := newApp(c.env, s, problems, c.stderr)
	if wrong := assemble.ProblemsOf(err); wrong != nil {
		return c.notStarted(wrong)
	}
	if err != nil {
		return errors.Join(settings.ErrInvalid, err)
	}
	var signals <-chan os.Signal
	if c.signals != nil {
		var stop func()
		signals, stop = c.signals()
		defer stop()
	}
	return a.run(ctx, signals, memory)
}

// notStarted prints what keeps it from starting.
func (c *call) notStarted(problems settings.Problems) error {
	printProblems(c.stderr, c.paint(c.stderr), problems)
	fmt.Fprintf(c.stderr, "retryproxy: not started: %s; docs/settings.md lists the settings\n", plural(len(problems.Errors()), "error"))
	return fmt.Errorf("%w %w", errTold, settings.ErrInvalid)
}
