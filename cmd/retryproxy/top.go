package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/page"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/terminal"
	"github.com/retryproxy/retryproxy/cmd/retryproxy/internal/top"
)

var topCommand = command{
	name:    "top",
	args:    "[--every 1s] [--json] [--address HOST:PORT] [--timeout 2s]",
	summary: "show what a running retryproxy does, as the page on its admin listener does",
	details: `Shows routes, upstreams and the last requests that failed, now and over the last
five minutes. On a terminal it shows them anew every second until Ctrl-C; elsewhere,
or with --json, once. NO_COLOR is obeyed.`,
	run: runTop,
}

// leastEvery keeps a mistyped --every from keeping the other side busy.
const leastEvery = 100 * time.Millisecond

func runTop(ctx context.Context, c *call) error {
	f := c.flags()
	every := f.Duration("every", time.Second, "time between two looks on a terminal, 100ms at least")
	asJSON := f.Bool("json", false, "print all there is as JSON, once")
	ask, err := c.parseAsk(f)
	if err != nil {
		return err
	}
	body, err := lookOnce(ctx, ask)
	switch {
	case err != nil:
		return err
	case *asJSON:
		fmt.Fprintln(c.stdout, body)
		return nil
	case !isTerminal(c.stdout) || c.getenv("TERM") == "dumb":
		_, err := c.drawTop(body)
		return err
	}
	return c.keepTop(ctx, ask, body, max(*every, leastEvery))
}

// lookOnce gets the state as JSON.
func lookOnce(ctx context.Context, ask asker) (string, error) {
	status, body, err := ask(ctx, http.MethodGet, "/page/state.json", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the answer was %d: %s", status, body)
	}
	return body, err
}

// drawTop writes the state and says how many lines it took.
func (c *call) drawTop(body string) (lines int, err error) {
	var s page.Snapshot
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return 0, fmt.Errorf("read the answer: %w", err)
	}
	var text strings.Builder
	if err := top.Write(&text, &s, terminal.Screen(c.stdout, c.getenv)); err != nil {
		return 0, err
	}
	_, err = fmt.Fprint(c.stdout, text.String())
	return strings.Count(text.String(), "\n"), err
}

// keepTop draws again and again in the same place until a signal. A proxy that
// does not answer is said to and asked again: it may be about to start anew.
func (c *call) keepTop(ctx context.Context, ask asker, body string, every time.Duration) error {
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	// Long lines are cut, not wrapped, so that going back finds the first one
	// (DECAWM); the screen below is cleared each time (ECMA-48 CPL and ED).
	fmt.Fprint(c.stdout, "\x1b[?7l")
	defer fmt.Fprint(c.stdout, "\x1b[?7h")
	lines, err := c.drawTop(body)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		body, asked := lookOnce(ctx, ask)
		if ctx.Err() != nil {
			return nil
		}
		if lines > 0 {
			fmt.Fprintf(c.stdout, "\x1b[%dF\x1b[J", lines)
		}
		if asked != nil {
			fmt.Fprintln(c.stdout, asked)
			lines = 1
			continue
		}
		lines, err = c.drawTop(body)
	}
	return err
}
