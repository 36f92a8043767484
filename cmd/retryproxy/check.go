package main

import (
	"context"
	"fmt"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/effective"
	"github.com/retryproxy/retryproxy/internal/serve"
	"github.com/retryproxy/retryproxy/internal/text"
)

var checkCommand = command{
	name:    "check",
	args:    "[--all] [--json]",
	summary: "check the settings and print the effective ones, route by route",
	details: `Reads the environment and RETRYPROXY_CONFIG_FILE like a start would, but opens
nothing. Prints the settings that are set, each with its variable, and those that
most people need. For every named route it prints what differs from the default
route. Then come what a request can cost at worst, and all errors and warnings.
The exit code is 2 if there is an error.`,
	run: runCheck,
}

func runCheck(_ context.Context, c *call) error {
	f := c.flags()
	asJSON := f.Bool("json", false, "print JSON")
	all := f.Bool("all", false, "print every setting of every route, defaults included")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	s, problems := serve.Check(c.env, config.Getenv(c.env))
	if *asJSON {
		if err := text.JSON(c.stdout, effective.Of(s, problems)); err != nil {
			return err
		}
	} else {
		effective.Text(c.stdout, text.PaintFor(c.stdout, config.Getenv(c.env)), s, problems, *all)
	}
	if !*asJSON { // not with the settings, which may go to a file or nowhere
		text.Problems(c.stderr, text.PaintFor(c.stderr, config.Getenv(c.env)), problems)
	}
	if problems.Err() != nil {
		return fmt.Errorf("%w %w", errReported, config.ErrInvalid)
	}
	return nil
}
