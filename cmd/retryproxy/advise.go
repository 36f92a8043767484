package main

import (
	"context"
	"fmt"
	"time"

	"github.com/retryproxy/retryproxy/internal/advise"
	"github.com/retryproxy/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/internal/text"
)

var adviseCommand = command{
	name:    "advise",
	args:    "[--window 5m] [--json] [--address HOST:PORT] [--timeout 2s]",
	summary: "propose timeouts, retry budget and backoff from the traffic of a running retryproxy",
	details: `Reads the metrics of the retryproxy on this machine (RETRYPROXY_ADMIN_LISTEN). For
every route, prints what retries gained and what they cost, and which timeouts,
retry budget and backoff would fit the traffic, each with its reason. It changes
nothing. Where there was too little traffic, it says so.

With --window it reads the metrics twice, that far apart, and looks at the time
between. Otherwise it looks at everything since the process started. For a route
with RETRYPROXY_DRY_RUN=true it prints what retries would gain.`,
	run: runAdvise,
}

// leastWindow is the shortest window: counts over less time mean nothing.
const leastWindow = time.Second

func runAdvise(ctx context.Context, c *call) error {
	f := c.flags()
	window := f.Duration("window", 0, "observe this long from now on; 0 means since the process started")
	asJSON := f.Bool("json", false, "print JSON")
	ask, err := c.parseAsk(f)
	if err != nil {
		return err
	}
	if *window != 0 && *window < leastWindow {
		return c.usage(f, fmt.Errorf("--window: expected at least %v", leastWindow))
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if *window > 0 && terminal.Is(c.stderr) {
		fmt.Fprintf(c.stderr, "looking at the next %v\n", *window)
	}
	in, err := advise.Observe(ctx, ask, *window)
	if err != nil {
		return err
	}
	report, err := advise.Advise(*in)
	if err != nil {
		return err
	}
	if *asJSON {
		return text.JSON(c.stdout, report)
	}
	report.Text(c.stdout, terminal.ScreenOf(c.stdout, c.getenv))
	return nil
}
