package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"

	"github.com/retryproxy/retryproxy/internal/admin"
)

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
