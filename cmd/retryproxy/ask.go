package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/retryproxy/retryproxy/internal/admin"
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

var percentCommand = command{
	name:    "retry-percent",
	args:    "[--address HOST:PORT] [--timeout 2s] [N]",
	summary: "show or change how many retries a running retryproxy makes",
	details: `Prints the percentage of retries that are made. With N, from 0 (none) to 100 (all),
it first changes that for all routes, at once. The change lasts until the process
ends. Immediate retries after the upstream closed an idle connection do not count as
retries here.`,
	run: runPercent,
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

func runPercent(ctx context.Context, c *call) error {
	f := c.flags()
	ask, rest, err := c.parseAskRest(f, 1)
	if err != nil {
		return err
	}
	method, body := http.MethodGet, ""
	if len(rest) == 1 {
		n, err := admin.ParsePercent(rest[0])
		if err != nil {
			return c.usage(f, err)
		}
		method, body = http.MethodPost, strconv.Itoa(n)
	}
	status, answer, err := ask(ctx, method, "/retry-percent", body)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("the response was %d: %s", status, answer)
	}
	fmt.Fprintln(c.stdout, answer)
	return nil
}

// parseAsk parses the flags of a command and returns what sends a request.
func (c *call) parseAsk(f *flag.FlagSet) (adminclient.Ask, error) {
	ask, _, err := c.parseAskRest(f, 0)
	return ask, err
}

// parseAskRest is like parseAsk for a command with up to max arguments of its own.
func (c *call) parseAskRest(f *flag.FlagSet, max int) (adminclient.Ask, []string, error) {
	timeout := f.Duration("timeout", 2*time.Second, "time for the response")
	a, rest, err := c.parseAddress(f, max)
	if err != nil {
		return nil, nil, err
	}
	return adminclient.To(a, *timeout), rest, nil
}

// parseAddress parses the flags and returns the address of the admin listener, and the arguments. It
// ignores problems of other settings: a health check must not fail because of them.
func (c *call) parseAddress(f *flag.FlagSet, max int) (config.Address, []string, error) {
	given := f.String("address", "", "the admin listener (host:port or unix:/path); default RETRYPROXY_ADMIN_LISTEN")
	rest, err := c.parse(f, max)
	if err != nil {
		return "", nil, err
	}
	if *given != "" {
		a, err := config.ParseAddress(*given)
		if err != nil || a.Off() {
			fmt.Fprintf(c.stderr, "retryproxy %s: --address %s: expected host:port or unix:/path\n", c.command.name, *given)
			return "", nil, errUsage
		}
		return a, rest, nil
	}
	s, _ := config.Load(c.env)
	if s.AdminListen.Off() {
		return "", nil, errors.New("RETRYPROXY_ADMIN_LISTEN=off: the admin listener is off")
	}
	return s.AdminListen, rest, nil
}
