package peers

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Client is a raw connection to the proxy.
type Client struct {
	net.Conn
	Reader *bufio.Reader
	T      testing.TB
}

// Send writes s as it is.
func (c *Client) Send(s string) *Client {
	c.T.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.T.Fatalf("send: %v", err)
	}
	return c
}

// Response reads one response with its whole body. method matters for HEAD.
func (c *Client) Response(method string) (*http.Response, string, error) {
	c.T.Helper()
	res, err := http.ReadResponse(c.Reader, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// Want reads one response and checks status and body.
func (c *Client) Want(status int, body string) *http.Response {
	c.T.Helper()
	res, got, err := c.Response("GET")
	if err != nil {
		c.T.Fatalf("response: %v", err)
	}
	if res.StatusCode != status || body != "*" && got != body {
		c.T.Fatalf("got %d %q, want %d %q", res.StatusCode, got, status, body)
	}
	return res
}

// Rest reads all that comes until the connection ends.
func (c *Client) Rest() (string, error) {
	b, err := io.ReadAll(c.Reader)
	return string(b), err
}

// WantRaw reads as many bytes as want has and compares them.
func (c *Client) WantRaw(want string) {
	c.T.Helper()
	got := make([]byte, len(want))
	n, err := io.ReadFull(c.Reader, got)
	if string(got[:n]) != want {
		c.T.Fatalf("got %q, %v; want %q", got[:n], err, want)
	}
}

// WantEnd reads to the end, which must be an orderly one, and compares.
func (c *Client) WantEnd(want string) {
	c.T.Helper()
	if got, err := c.Rest(); got != want || err != nil {
		c.T.Fatalf("the connection ended with %q, %v; want %q and an orderly end", got, err, want)
	}
}

// CloseWrite tells the other side that no more comes.
func (c *Client) CloseWrite() {
	c.T.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.T.Fatal(err)
	}
}

// Reset closes so that the other side sees a reset.
func (c *Client) Reset() {
	_ = c.Conn.(interface{ SetLinger(int) error }).SetLinger(0)
	_ = c.Close()
}

// Gone checks that the client's leaving soon ended the only request, and that the attempt was
// aborted.
func Gone(t *testing.T, p *Front, left time.Time, aborted <-chan error) {
	t.Helper()
	p.WantOutcome(0, policy.OutcomeClientGone)
	if d := time.Since(left); d > 3*time.Second {
		t.Errorf("noticed after %v", d)
	}
	if aborted == nil {
		return
	}
	if err := Within(t, "the end upstream", aborted); !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the upstream's connection ended with %v, want a reset", err)
	}
}

// WantDraining checks that a client got the reason draining that long after the drain began.
func WantDraining(t *testing.T, res *http.Response, took, want time.Duration) {
	t.Helper()
	late := took - want
	if res.StatusCode != 503 || res.Header.Get("X-Retryproxy-Reason") != "draining" || late < 0 || late > 20*time.Millisecond {
		t.Errorf("%d after %v, want 503 after %v; %v", res.StatusCode, took, want, res.Header)
	}
}

// Later runs the rest of a client's exchange; call the result for its end.
func (c *Client) Later() (ended func() (*http.Response, time.Time)) {
	var res *http.Response
	var at time.Time
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, _, _ = c.Response("GET")
		at = time.Now()
	}()
	return func() (*http.Response, time.Time) { <-done; return res, at }
}
