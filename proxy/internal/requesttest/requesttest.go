// Package requesttest makes the request of a client for tests of the packages that serve it, without a
// server or an upstream: begin with Begin. What the client sends goes through a net.Pipe, so it works in
// a bubble of testing/synctest; what it gets is recorded. BeginTCP has a socket.
package requesttest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Get is a request without a body.
const Get = "GET /a HTTP/1.1\r\nHost: shop.example\r\n\r\n"

// Client is the client of one request.
type Client struct {
	*request.Request
	Process  *request.Process
	Settings *settings.Settings
	Far      net.Conn // the client's end: what it sends, and its leaving
	Wire     *Wire    // what it gets

	t    testing.TB
	conn *downstream.Conn
}

var errNoUpstream = errors.New("the test has no upstream")

// Config returns a configuration with one route, named "default", that retries what is usual. Its
// upstream cannot be reached.
func Config(t testing.TB) *settings.Config {
	t.Helper()
	target, err := upstream.ParseTarget("http://upstream.example")
	if err != nil {
		t.Fatal(err)
	}
	target.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errNoUpstream }
	target.Resolve = func(context.Context, string) ([]netip.Addr, error) { return nil, errNoUpstream }
	on, err := policy.ParseRetryOn("5xx,429,connect-failure,reset,attempt-timeout")
	if err != nil {
		t.Fatal(err)
	}
	return &settings.Config{
		Default: settings.Route{
			Name:             "default",
			Upstream:         target,
			Policy:           policy.Policy{RetryOn: on, MaxRetries: 3, Backoff: backoff.Fixed{Base: time.Second}},
			NoBudget:         true,
			RequestTimeout:   30 * time.Second,
			AttemptTimeout:   10 * time.Second,
			BodyIdleTimeout:  10 * time.Second,
			RetryBufferBytes: 1 << 20,
			Guard:            breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitOff},
			QueueMax:         10,
		},
		Limits:                http1.Limits{HeaderBytes: 64 << 10, Headers: 100},
		RetryBufferTotalBytes: 64 << 20,
	}
}

// Begin returns a client that has sent the headers in text, and what follows them, to a proxy with the
// usual configuration as changed by change, which may be nil. Its route is found, and it is not prepared.
func Begin(t testing.TB, text string, change func(c *settings.Config)) *Client {
	t.Helper()
	near, far := net.Pipe()
	wire := &Wire{Conn: near}
	c := begin(t, text, change, wire, far)
	c.Wire = wire
	return c
}

// BeginTCP is like Begin over TCP, for what only a socket can do. It has no Wire.
func BeginTCP(t testing.TB, text string, change func(c *settings.Config)) *Client {
	t.Helper()
	near, far := TCP(t)
	return begin(t, text, change, near, far)
}

// TCP returns both ends of a connection over loopback.
func TCP(t testing.TB) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to, err := net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	if near, err = l.AcceptTCP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	return near, to
}

func begin(t testing.TB, text string, change func(c *settings.Config), near, far net.Conn) *Client {
	t.Helper()
	config := Config(t)
	if change != nil {
		change(config)
	}
	c := &Client{t: t, conn: &downstream.Conn{}, Request: &request.Request{}, Far: far}
	nothing := func() bool { return false }
	c.Process = request.NewProcess(config.RetryBufferTotalBytes, request.Hooks{OnFault: func(any) {}, OnWait: func() {}, CloseIdleUpstream: nothing, UnderPressure: nothing})
	c.Settings = Prepare(t, config, c.Process, nil)

	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	c.conn.Init(near, c.Process.Clock, "", 0, spans{})
	c.conn.Identify(forward.Peer{Addr: netip.MustParseAddr("127.0.0.1"), Text: "127.0.0.1"})
	c.conn.BeginRequest(config.WriteTimeout)
	c.Request.Init(c.conn, c.Process)
	t.Cleanup(c.end)
	c.Next(text)
	return c
}

// Prepare makes the configuration ready to run, as a reload of before if that is not nil. Its upstreams
// are closed when the test ends.
func Prepare(t testing.TB, config *settings.Config, p *request.Process, before *settings.Settings) *settings.Settings {
	t.Helper()
	set, err := settings.Prepare(config, p.ForSettings(http2.ReadAhead{}), before)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, u := range set.Upstreams() {
			u.Close()
		}
	})
	return set
}

// Next begins another request of the same connection.
func (c *Client) Next(text string) {
	c.t.Helper()
	c.end()
	c.conn.Request().Reset()
	c.conn.Begin(buffer.Medium)
	go func() { _, _ = io.WriteString(c.Far, text) }()
	for whole := false; !whole; {
		err := c.conn.Fill()
		if err == nil {
			whole, err = c.conn.ParseRequest(c.Settings.Limits)
		}
		if err != nil {
			c.t.Fatalf("%q: %v", text, err)
		}
	}
	c.Request.Begin(c.Settings, c.Process.Clock.Now())
	c.FindRoute()
}

// end returns the memory of the request.
func (c *Client) end() {
	c.Body.Close()
	c.DropHeaders()
	c.Out.Drop()
	c.conn.ReleaseIdleBuffers()
	c.conn.PutIn()
}

// From makes the request one of a peer with that address, as the settings see it.
func (c *Client) From(addr string) {
	a := &net.TCPAddr{IP: net.ParseIP(addr)}
	c.conn.Identify(settings.PeerOf(a, c.Settings))
}

// Response parses what the client got, which must be one whole response to a request with the method.
// It is read anew with each call.
func (c *Client) Response(method string) (*http.Response, string) {
	c.t.Helper()
	r := strings.NewReader(c.Wire.String())
	b := bufio.NewReader(r)
	res, err := http.ReadResponse(b, &http.Request{Method: method})
	if err != nil {
		c.t.Fatalf("%v: %q", err, c.Wire.String())
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("%v: %q", err, c.Wire.String())
	}
	if n := r.Len() + b.Buffered(); n > 0 {
		c.t.Errorf("%d bytes follow the response: %q", n, c.Wire.String())
	}
	return res, string(body)
}

// Wire is the proxy's end of the connection. It records what is written.
type Wire struct {
	net.Conn

	mu      sync.Mutex // guards all below
	written []byte
	gone    bool
	by      time.Time
}

// Leave makes all further writes fail, as if the client was gone.
func (w *Wire) Leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
}

// Write implements net.Conn.
func (w *Wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return 0, errors.New("the client is gone")
	}
	w.written = append(w.written, p...)
	return len(p), nil
}

// SetWriteDeadline implements net.Conn.
func (w *Wire) SetWriteDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by = t
	return nil
}

// WriteBy returns the write deadline that was set last.
func (w *Wire) WriteBy() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by
}

// String returns what was written.
func (w *Wire) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.written)
}

// spans holds nothing.
type spans struct{}

func (spans) Detach()              {}
func (spans) CheckDetached([]byte) {}
func (spans) Compact()             {}
