package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/internal/adminclient"
	"github.com/retryproxy/retryproxy/internal/config"
)

// The commands of this file ask the admin listener of a running retryproxy.

var healthCommand = command{
	name:    "health",
	args:    "[--live] [--address HOST:PORT] [--timeout 2s]",
	summary: "ask a running retryproxy whether it accepts requests",
	details: `Asks the retryproxy on this machine (RETRYPROXY_ADMIN_LISTEN). The exit code is 0 if
it accepts requests, and 1 if it does not or does not respond. This is for
container health checks and exec probes.`,
	run: runHealth,
}

var drainCommand = command{
	name:    "drain",
	args:    "[--address HOST:PORT] [--timeout 2s]",
	summary: "shut a running retryproxy down gracefully",
	details: `Does the same as SIGTERM: readiness fails, RETRYPROXY_DRAIN_DELAY passes, requests in
flight get RETRYPROXY_DRAIN_TIMEOUT to end, and the process ends. The command returns
as soon as this has begun. It is for preStop hooks in images without a shell.`,
	run: runDrain,
}

func runHealth(ctx context.Context, c *call) error {
	f := c.flags()
	live := f.Bool("live", false, "ask whether the process is alive, not whether it accepts requests")
	ask, err := c.parseAsk(f)
	if err != nil {
		return err
	}
	path := "/readyz"
	if *live {
		path = "/livez"
	}
	status, body, err := ask(ctx, http.MethodGet, path)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, body)
	if status != http.StatusOK {
		return errReported
	}
	return nil
}

func runDrain(ctx context.Context, c *call) error {
	ask, err := c.parseAsk(c.flags())
	if err != nil {
		return err
	}
	status, body, err := ask(ctx, http.MethodPost, "/drain")
	if err != nil {
		return err
	}
	if status != http.StatusAccepted {
		return fmt.Errorf("the response was %d: %s", status, body)
	}
	fmt.Fprintln(c.stdout, body)
	return nil
}

// parseAsk parses the flags of a command and returns what sends a request.
func (c *call) parseAsk(f *flag.FlagSet) (adminclient.Ask, error) {
	timeout := f.Duration("timeout", 2*time.Second, "time for the response")
	a, err := c.parseAddress(f)
	if err != nil {
		return nil, err
	}
	return adminclient.To(a, *timeout), nil
}

// parseAddress parses the flags and returns the address of the admin listener.
func (c *call) parseAddress(f *flag.FlagSet) (config.Address, error) {
	given := f.String("address", "", "the admin listener (host:port or unix:/path); default RETRYPROXY_ADMIN_LISTEN")
	if _, err := c.parse(f, 0); err != nil {
		return "", err
	}
	a, err := adminclient.Address(*given, c.env)
	if errors.Is(err, adminclient.ErrAddress) {
		return "", c.usage(f, err)
	}
	return a, err
}
