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

var healthCommand = command{
	name:    "health",
	args:    "[--live] [--address HOST:PORT] [--timeout 2s]",
	summary: "ask a running retryproxy whether it takes requests",
	details: `Asks the admin listener of this machine that RETRYPROXY_ADMIN_LISTEN names. The
exit code is 0 when the response is yes and 1 when it is no or there is none, which
is what container health checks and probes by command want.`,
	run: runHealth,
}

var drainCommand = command{
	name:    "drain",
	args:    "[--address HOST:PORT] [--timeout 2s]",
	summary: "tell a running retryproxy to end in order",
	details: `Does what SIGTERM does: readiness fails, after RETRYPROXY_DRAIN_DELAY running
requests end within RETRYPROXY_DRAIN_TIMEOUT, and the process ends. Returns as
soon as that has begun. For a preStop hook, where there is no shell to send a
signal with.`,
	run: runDrain,
}

var quitCommand = command{
	name:    "quit",
	args:    "[--address HOST:PORT] [--timeout 2s]",
	summary: "tell a running retryproxy that its work is done",
	details: `Like drain, but without RETRYPROXY_DRAIN_DELAY: requests in flight end within
RETRYPROXY_DRAIN_TIMEOUT and the process ends with exit code 0. For a Job whose
sidecar has to end when the work is done, where the application in the Pod says
so itself, as by

  wget -qO- --post-data= http://localhost:9797/quit

A Job on Kubernetes 1.29 or later with a native sidecar does not need it.`,
	run: runQuit,
}

func runHealth(ctx context.Context, c *call) error {
	f := c.flags()
	live := f.Bool("live", false, "ask whether the process lives, not whether it takes requests")
	ask, err := c.parseAsk(f)
	if err != nil {
		return err
	}
	path := "/readyz"
	if *live {
		path = "/livez"
	}
	status, body, err := ask(ctx, http.MethodGet, path, "")
	if err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, body)
	if status != http.StatusOK {
		return errReported
	}
	return nil
}

func runDrain(ctx context.Context, c *call) error { return c.order(ctx, "/drain") }

func runQuit(ctx context.Context, c *call) error { return c.order(ctx, "/quit") }

// order posts to a path that begins something.
func (c *call) order(ctx context.Context, path string) error {
	ask, err := c.parseAsk(c.flags())
	if err != nil {
		return err
	}
	status, body, err := ask(ctx, http.MethodPost, path, "")
	if err != nil {
		return err
	}
	if status != http.StatusAccepted {
		return fmt.Errorf("the response was %d: %s", status, body)
	}
	fmt.Fprintln(c.stdout, body)
	return nil
}

func (c *call) parseAsk(f *flag.FlagSet) (adminclient.Ask, error) {
	ask, _, err := c.parseAskRest(f, 0)
	return ask, err
}

// parseAskRest is parseAsk for a command with up to max arguments of its own.
func (c *call) parseAskRest(f *flag.FlagSet, max int) (adminclient.Ask, []string, error) {
	address := f.String("address", "", "the admin listener (host:port or unix:/path); default as RETRYPROXY_ADMIN_LISTEN says")
	timeout := f.Duration("timeout", 2*time.Second, "time for the response")
	rest, err := c.parse(f, max)
	if err != nil {
		return nil, nil, err
	}
	a, err := c.adminAddress(*address)
	if err != nil {
		return nil, nil, err
	}
	return adminclient.To(a, *timeout), rest, nil
}

// adminAddress is where to ask. Problems of other settings are not this
// command's: a health check must not fail because a warning became an error.
func (c *call) adminAddress(given string) (config.Address, error) {
	if given != "" {
		a, err := config.MakeAddress(given)
		if err != nil || a.Off() {
			fmt.Fprintf(c.stderr, "retryproxy %s: --address %s: expected host:port or unix:/path\n", c.command.name, given)
			return a, errUsage
		}
		return a, nil
	}
	s, _ := config.Load(c.env)
	if s.AdminListen.Off() {
		return s.AdminListen, errors.New("RETRYPROXY_ADMIN_LISTEN=off: there is nobody to ask")
	}
	return s.AdminListen, nil
}
