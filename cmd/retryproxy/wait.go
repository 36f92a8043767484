package main

import (
	"context"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/internal/adminclient"
)

var waitCommand = command{
	name:    "wait",
	args:    "[--address HOST:PORT] [--timeout 60s]",
	summary: "wait until a retryproxy accepts requests",
	details: `Asks the retryproxy on this machine (RETRYPROXY_ADMIN_LISTEN) until it accepts
requests, and fails if that takes too long. It is for what must not start earlier,
such as a postStart hook that holds back the next container.`,
	run: runWait,
}

func runWait(ctx context.Context, c *call) error {
	f := c.flags()
	address := f.String("address", "", "the admin listener (host:port or unix:/path); default RETRYPROXY_ADMIN_LISTEN")
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
	last := adminclient.AwaitReady(ctx, a)
	if last == nil {
		fmt.Fprintln(c.stdout, "ok")
		return nil
	}
	return fmt.Errorf("not ready within %v: %w", *timeout, last)
}
