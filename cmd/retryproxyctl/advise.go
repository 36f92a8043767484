package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/retryproxy/retryproxy/ctl/advise"
	"github.com/retryproxy/retryproxy/internal/adminclient"
	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
)

// leastWindow is the shortest window: counts over less time mean nothing.
const leastWindow = time.Second

// adviseFlags are the flags of advise.
type adviseFlags struct {
	window, timeout time.Duration
	address         string
	json            bool
}

func adviseCommand(o *outside) *cobra.Command {
	var a adviseFlags
	c := &cobra.Command{
		Use:   "advise [--window 5m] [--json] [--address HOST:PORT] [--timeout 2s]",
		Short: "propose timeouts, retry budget and backoff from the traffic of a running retryproxy",
		Long: `Reads the metrics of the retryproxy at RETRYPROXY_ADMIN_LISTEN or --address. For every
route, prints what retries gained and what they cost, and which timeouts, retry budget
and backoff would fit the traffic, each with its reason. It changes nothing. If there
was too little traffic for advice, it prints that.

With --window it reads the metrics twice, that far apart, and looks at the time
between. Otherwise it looks at everything since the process started. For a route
with RETRYPROXY_DRY_RUN=true it prints what retries would gain.`,
		RunE: func(c *cobra.Command, _ []string) error { return a.run(c.Context(), o, c) },
	}
	f := c.Flags()
	f.DurationVar(&a.window, "window", 0, "observe this long from now on; 0 means since the process started")
	f.BoolVar(&a.json, "json", false, "print JSON")
	f.StringVar(&a.address, "address", "", "the admin `listener` (host:port or unix:/path); default RETRYPROXY_ADMIN_LISTEN")
	f.DurationVar(&a.timeout, "timeout", 2*time.Second, "time for each response")
	return c
}

func (a *adviseFlags) run(ctx context.Context, o *outside, c *cobra.Command) error {
	if a.window != 0 && a.window < leastWindow {
		return wrong(c, fmt.Errorf("--window: expected at least %v", leastWindow))
	}
	address, err := adminclient.Address(a.address, o.env)
	switch {
	case errors.Is(err, adminclient.ErrAddress):
		return wrong(c, err)
	case err != nil:
		return err
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if a.window > 0 && terminal.Is(o.stderr) {
		fmt.Fprintf(o.stderr, "looking at the next %v\n", a.window)
	}
	in, err := advise.Observe(ctx, adminclient.To(address, a.timeout), a.window)
	if err != nil {
		return err
	}
	report, err := advise.Advise(*in)
	if err != nil {
		return err
	}
	if a.json {
		return text.JSON(o.stdout, report)
	}
	report.Text(o.stdout, terminal.ScreenOf(o.stdout, config.Getenv(o.env)))
	return nil
}
