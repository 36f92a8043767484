package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/advising"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/terminal"
)

var adviseCommand = command{
	name:    "advise",
	args:    "[--window 5m] [--json] [--address HOST:PORT] [--timeout 2s]",
	summary: "propose timeouts, budget and backoff from what a running retryproxy has counted",
	details: `Asks the admin listener of this machine that RETRYPROXY_ADMIN_LISTEN names for its
metrics, and prints for every route what retries brought and what they cost, and
which timeouts, retry budget and backoff would fit the traffic, each with its
reason. It changes nothing, and says so where there was too little traffic.

With --window it asks twice, so far apart, and looks at the time between; without,
at all that was counted since the process began. A route in
RETRYPROXY_DRY_RUN=true is told what retries would bring.`,
	run: runAdvise,
}

// leastWindow: the counts of a moment say nothing.
const leastWindow = time.Second

func runAdvise(ctx context.Context, c *call) error {
	f := c.flags()
	window := f.Duration("window", 0, "look at so long from now on; 0 means since the process began")
	asJSON := f.Bool("json", false, "print JSON")
	ask, err := c.parseAsk(f)
	if err != nil {
		return err
	}
	if *window != 0 && *window < leastWindow {
		return c.usage(f, fmt.Errorf("--window: expected at least %v", leastWindow))
	}
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	if *window > 0 && isTerminal(c.stderr) {
		fmt.Fprintf(c.stderr, "looking at the next %v\n", *window)
	}
	in, err := observeWindow(ctx, ask, *window)
	if err != nil {
		return err
	}
	report, err := advising.Advise(*in)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(c.stdout, report)
	}
	return report.Text(c.stdout, terminal.Screen(c.stdout, c.getenv))
}

// observeWindow takes the samples and the settings in force.
func observeWindow(ctx context.Context, ask asker, window time.Duration) (*advising.Input, error) {
	in := &advising.Input{}
	var err error
	if in.After, err = takeSample(ctx, ask); err != nil {
		return nil, err
	}
	began := time.Now()
	if in.After.Started > 0 {
		in.Seconds = float64(began.UnixNano())/1e9 - in.After.Started
	}
	if window > 0 {
		timer := time.NewTimer(window)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, errors.New("stopped before the second sample")
		}
		in.Before = in.After
		if in.After, err = takeSample(ctx, ask); err != nil {
			return nil, err
		}
		in.Seconds = time.Since(began).Seconds()
	}
	in.Settings, err = askSettings(ctx, ask)
	return in, err
}

func takeSample(ctx context.Context, ask asker) (*advising.Sample, error) {
	status, text, err := ask(ctx, http.MethodGet, "/metrics", "")
	switch {
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("the metrics were not given: %d: %s", status, text)
	}
	return advising.Parse(text)
}

// askSettings gives nil where they are not shown: to another machine.
func askSettings(ctx context.Context, ask asker) (map[string]advising.InForce, error) {
	status, text, err := ask(ctx, http.MethodGet, "/config", "")
	if err != nil || status != http.StatusOK {
		return nil, err
	}
	return advising.ParseSettings(text)
}
