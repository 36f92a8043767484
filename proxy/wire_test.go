package proxy

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// bare switches off what the proxy adds to responses, for tests that compare
// every byte.
func bare(c *Config) {
	c.Default.ResponseChanges = forward.NewHeaderChanges(nil, []string{"X-Retryproxy-Attempts", "X-Retryproxy-Reason", "X-Retryproxy-Fallback", "X-Request-Id", "X-Should-Retry", "Date"})
}

// wantRaw reads as many bytes as want has and compares them.
func (c *client) wantRaw(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.r, got)
	if string(got[:n]) != want {
		c.t.Fatalf("got %q, %v; want %q", got[:n], err, want)
	}
}

// wantEnd reads to the end, which must be an orderly one, and compares.
func (c *client) wantEnd(want string) {
	c.t.Helper()
	if got, err := c.rest(); got != want || err != nil {
		c.t.Fatalf("the connection ended with %q, %v; want %q and an orderly end", got, err, want)
	}
}

// closeWrite tells the other side that no more comes.
func (c *client) closeWrite() {
	c.t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// reset closes so that the other side sees a reset.
func (c *client) reset() {
	_ = c.Conn.(interface{ SetLinger(int) error }).SetLinger(0)
	_ = c.Close()
}

// wantOutcome waits for the nth outcome (from 0) and compares.
func (p *front) wantOutcome(n int, want policy.Outcome) {
	p.t.Helper()
	if o := p.seen.outcome(p.t, n); o != want {
		p.t.Errorf("outcome %v, want %v", o, want)
	}
}

// patience ends a test that hangs; nothing that works takes so long, also on a
// machine that is busy with other things.
const patience = 30 * time.Second

// soon waits until cond holds, within patience.
func soon(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// within gives what arrives on ch, within patience.
func within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %v: %s", patience, what)
		panic("unreachable")
	}
}

// rawBody reads from the upstream's side of a connection until it has n bytes
// and gives them as they came.
func (c *upConn) rawBody(n int) string {
	b := make([]byte, n)
	m, _ := io.ReadFull(c.Reader, b)
	return string(b[:m])
}

// endOfInput reads until the connection ends and gives what came and how it ended.
func (c *upConn) endOfInput() (string, error) {
	b, err := io.ReadAll(c.Reader)
	return string(b), err
}

// refusals collects the labels given to Config.Refused.
type refusals struct {
	mu  sync.Mutex
	all []http1.Refusal
}

func (r *refusals) add(why http1.Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, why)
}

func (r *refusals) list() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Trim(fmt.Sprint(r.all), "[]")
}

// request writes a request headers with the given field lines, without its final
// empty line being forgotten.
func requestText(line string, fields ...string) string {
	return strings.Join(append([]string{line}, fields...), "\r\n") + "\r\n\r\n"
}

// newReader reads s, then c.
func newReader(s string, c *upConn) *bufio.Reader {
	return bufio.NewReader(io.MultiReader(strings.NewReader(s), c.Reader))
}

// waitsBegun is how many waits for a retry are in flight or over.
func (r *recorder) waitsBegun() int { defer r.lock()(); return r.waiting + len(r.waits) }
