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

var quitCommand = command{
	name:    "quit",
	args:    "[--address HOST:PORT] [--timeout 2s]",
	summary: "shut a running retryproxy down because its work is done",
	details: `Like drain, but without RETRYPROXY_DRAIN_DELAY, and the exit code of retryproxy is 0.
It is for a Job whose sidecar must end when the work is done. The application can
also ask for it itself:

  wget -qO- --post-data= http://localhost:9797/quit

A native sidecar (Kubernetes 1.29 or later) does not need it.`,
	run: runQuit,
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

// parseAskRest is like parseAsk for a command with up to max arguments of its own.
func (c *call) parseAskRest(f *flag.FlagSet, max int) (adminclient.Ask, []string, error) {
	address := f.String("address", "", "the admin listener (host:port or unix:/path); default RETRYPROXY_ADMIN_LISTEN")
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

// adminAddress returns the address of the admin listener. It ignores problems of other settings: a
// health check must not fail because of them.
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
		return s.AdminListen, errors.New("RETRYPROXY_ADMIN_LISTEN=off: the admin listener is off")
	}
	return s.AdminListen, nil
}
