package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/settings"
)

var waitCommand = command{
	name:    "wait",
	args:    "[--address HOST:PORT] [--timeout 60s]",
	summary: "wait until a retryproxy takes requests",
	details: `Asks the admin listener of this machine that RETRYPROXY_ADMIN_LISTEN names until it
says that requests are taken, and fails when it has not said so in time. For what
may begin only then: a postStart hook that holds up the next container, a script.`,
	run: runWait,
}

const (
	waitInterval = 100 * time.Millisecond // asking costs the other side next to nothing
	waitAsk      = 2 * time.Second        // one question's time; the next one may find it up
)

func runWait(ctx context.Context, c *call) error {
	f := c.flags()
	address := f.String("address", "", "the admin listener (host:port or unix:/path); default as RETRYPROXY_ADMIN_LISTEN says")
	timeout := f.Duration("timeout", time.Minute, "how long to wait")
	if _, err := c.parse(f, 0); err != nil {
		return err
	}
	a, err := c.adminAddress(*address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	last := awaitReady(ctx, a)
	if last == nil {
		fmt.Fprintln(c.stdout, "ok")
		return nil
	}
	return fmt.Errorf("not ready within %v: %w", *timeout, last)
}

// awaitReady returns nil as soon as the response is yes, and why it was not when
// ctx ends.
func awaitReady(ctx context.Context, a settings.Address) error {
	last := errors.New("not asked")
	ticker := time.NewTicker(waitInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		err := askReady(ctx, a)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // else it is only the end of our own patience
			last = err
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	return last
}

func askReady(ctx context.Context, a settings.Address) error {
	ctx, cancel := context.WithTimeout(ctx, waitAsk)
	defer cancel()
	status, body, err := send(ctx, a, http.MethodGet, "/readyz", "")
	switch {
	case err != nil:
		return err
	case status != http.StatusOK:
		return errors.New(body)
	}
	return nil
}
