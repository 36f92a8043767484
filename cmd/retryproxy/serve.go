package main

import (
	"context"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/internal/serve"
	"github.com/retryproxy/retryproxy/internal/text"
)

var serveCommand = command{
	name:    "serve",
	summary: "forward requests; this is the default command",
	details: `Reads its settings from RETRYPROXY_* variables (docs/reference/settings.md) and forwards
requests until SIGTERM or SIGINT. Then it shuts down gracefully: /readyz fails,
RETRYPROXY_DRAIN_DELAY passes, and requests in flight get RETRYPROXY_DRAIN_TIMEOUT to
end. A second signal ends it at once. SIGHUP reads the configuration file and the
certificates again.`,
	run: runServe,
}

// lastLines is how long the end waits at most for the reader of standard error.
const lastLines = time.Second

// runServe serves, whether or not anybody reads standard error.
func runServe(ctx context.Context, c *call) error {
	if c.ignorePipe != nil {
		c.ignorePipe()
	}
	log := logwriter.New(c.stderr)
	defer log.Close(lastLines)
	own := *c.outside
	own.stderr, c.outside = log, &own
	return c.report(c.serve(ctx, log))
}

func (c *call) serve(ctx context.Context, log *logwriter.Writer) error {
	if _, err := c.parse(c.flags(), 0); err != nil {
		return err
	}
	if err := serve.BecomeTracing(c.become, c.outside.args, c.env, config.Getenv(c.env)); err != nil {
		fmt.Fprintf(c.stderr, "retryproxy: cannot run %s, so no traces are sent: %v\n", serve.TracingProgram, err)
	}
	err := serve.Run(ctx, serve.Options{Env: c.env, Getenv: config.Getenv(c.env), Log: log, Build: build(), Signals: c.signals})
	if wrong := config.ProblemsOf(err); wrong != nil {
		err = c.invalid(wrong)
		fmt.Fprintf(c.stderr, "retryproxy: not started: %s; docs/reference/settings.md lists the settings\n", text.Plural(len(wrong.Errors()), "error"))
	}
	return err
}
