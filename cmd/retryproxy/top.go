package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
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
five minutes. On a terminal it shows them anew every second until q or Ctrl-C; elsewhere,
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
		return c.drawTop(c.stdout, body, top.Size{})
	}
	return c.keepTop(ctx, ask, body, max(*every, leastEvery))
}

// lookOnce gets the state as JSON.
func lookOnce(ctx context.Context, ask asker) (string, error) {
	status, body, err := ask(ctx, http.MethodGet, "/page/state.json", "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the response was %d: %s", status, body)
	}
	return body, err
}

// drawTop writes the state, as much of it as a window of that size takes.
func (c *call) drawTop(w io.Writer, body string, size top.Size) error {
	var s page.Snapshot
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	return top.Write(w, &s, terminal.Screen(c.stdout, c.getenv), size)
}

// Control sequences (ECMA-48, and xterm's private modes): a second screen, so
// that what stood on the first comes back in the end; no cursor; no wrapping, as
// nothing is wider than the window unless that was made narrower just now.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	eraseLine   = "\x1b[K" // to its end
	eraseBelow  = "\x1b[J"
)

// keepTop draws again and again in the same place until a signal or the key q.
// A proxy that does not answer is said to and asked again: it may be about to
// start anew. What was seen last stays on the terminal.
func (c *call) keepTop(ctx context.Context, ask asker, body string, every time.Duration) error {
	ctx, stop := c.untilSignal(ctx)
	defer stop()
	keys, giveBack := terminal.Keys(c.stdin)
	defer giveBack()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	fmt.Fprint(c.stdout, enterScreen)
	text, err := c.redrawTop(body)
	for err == nil && !over(ctx, ticker.C, keys) {
		body, asked := lookOnce(ctx, ask)
		switch {
		case ctx.Err() != nil:
		case asked != nil:
			text = asked.Error() + "\n"
			c.redraw(text)
		default:
			text, err = c.redrawTop(body)
		}
	}
	fmt.Fprint(c.stdout, leaveScreen+text)
	return err
}

// over waits for the next look; true: there is none, as a signal or q came.
func over(ctx context.Context, next <-chan time.Time, keys <-chan byte) bool {
	for {
		select {
		case <-ctx.Done():
			return true
		case <-next:
			return false
		case key := <-keys:
			if key == 'q' || key == 'Q' || key == 4 { // Ctrl-D
				return true
			}
		}
	}
}

// redrawTop draws the state from the first line on and returns what it drew.
func (c *call) redrawTop(body string) (string, error) {
	columns, rows := terminal.Size(c.stdout)
	var text strings.Builder
	if err := c.drawTop(&text, body, top.Size{Columns: columns, Rows: max(rows-1, 0)}); err != nil {
		return "", err
	}
	c.redraw(text.String())
	return text.String(), nil
}

// redraw writes lines over what stood there. Each is erased before it is written:
// behind a line as wide as the window, the cursor stands on its last character.
func (c *call) redraw(text string) {
	var b strings.Builder
	b.WriteString(goHome)
	for line := range strings.Lines(text) {
		b.WriteString(eraseLine + line)
	}
	b.WriteString(eraseBelow)
	fmt.Fprint(c.stdout, b.String())
}
