package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/admin/page"
	"github.com/retryproxy/retryproxy/internal/adminclient"
	"github.com/retryproxy/retryproxy/internal/terminal"
)

// leastEvery keeps a mistyped interval from overloading the proxy.
const leastEvery = 100 * time.Millisecond

// Screen is where the state is drawn.
type Screen struct {
	Out    io.Writer
	Getenv func(string) string
}

// Draw writes the state once.
func (s Screen) Draw(body string) error { return s.draw(s.Out, body, Size{}) }

// Look requests the state as JSON.
func Look(ctx context.Context, ask adminclient.Ask) (string, error) {
	status, body, err := ask(ctx, http.MethodGet, "/page/state.json", "")
	var now page.Snapshot
	switch {
	case err != nil:
	case status == http.StatusNotFound, strings.HasPrefix(body, "<"), status == http.StatusOK && (json.Unmarshal([]byte(body), &now) != nil || now.State.Version == ""):
		err = errors.New("the address is not that of the admin listener of a retryproxy (--address, or RETRYPROXY_ADMIN_LISTEN)")
	case status != http.StatusOK:
		err = fmt.Errorf("the response was %d: %s", status, body)
	}
	return body, err
}

// draw writes the state, as much of it as fits a window of that size.
func (s Screen) draw(w io.Writer, body string, size Size) error {
	var now page.Snapshot
	if err := json.Unmarshal([]byte(body), &now); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	return Write(w, &now, terminal.ScreenOf(s.Out, s.Getenv), size)
}

// Control sequences (ECMA-48, and xterm's private modes): an alternate screen, so that the
// previous content returns at the end; no cursor; no wrapping, so that a message that is wider than
// the window does not move the lines below it.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	wrapAgain   = "\x1b[?7h"
	goHome      = "\x1b[H"
	eraseLine   = "\x1b[K" // to the end of the line
	eraseBelow  = "\x1b[J"
)

// Watch redraws the state in place until ctx ends. If the proxy does not
// respond, it shows that and asks again: the proxy may be restarting. The last state stays
// on the terminal.
func (s Screen) Watch(ctx context.Context, ask adminclient.Ask, body string, every time.Duration) error {
	every = max(every, leastEvery)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	fmt.Fprint(s.Out, enterScreen)
	text, err := s.redraw(body)
	for err == nil && next(ctx, ticker.C) {
		body, asked := Look(ctx, ask)
		switch {
		case ctx.Err() != nil:
		case asked != nil:
			text = asked.Error() + "\n"
			s.rewrite(text)
		default:
			text, err = s.redraw(body)
		}
	}
	fmt.Fprint(s.Out, leaveScreen+text+wrapAgain)
	return err
}

// next waits for the next redraw, and returns false if ctx ends first.
func next(ctx context.Context, tick <-chan time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-tick:
		return true
	}
}

// redraw draws the state from the first line on and returns the text.
func (s Screen) redraw(body string) (string, error) {
	columns, rows := terminal.Size(s.Out)
	var text strings.Builder
	if err := s.draw(&text, body, Size{Columns: columns, Rows: max(rows-1, 0)}); err != nil {
		return "", err
	}
	s.rewrite(text.String())
	return text.String(), nil
}

// rewrite writes lines over the previous content. It erases each line before it is written:
// after a line as wide as the window, the cursor is on its last character.
func (s Screen) rewrite(text string) {
	var b strings.Builder
	b.WriteString(goHome)
	for line := range strings.Lines(text) {
		b.WriteString(eraseLine + line)
	}
	b.WriteString(eraseBelow)
	fmt.Fprint(s.Out, b.String())
}
