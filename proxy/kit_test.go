package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// usualRetryOn is the default of RETRYPROXY_RETRY_ON.
const usualRetryOn = "5xx,429,connect-failure,reset,attempt-timeout"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeUpstream is a TCP server of the test: every connection is handled by
// handle, in order of arrival numbered from 1. sends counts the request heads
// read through upConn.head.
type fakeUpstream struct {
	net.Listener
	mu    sync.Mutex
	conns int
	heads []string
	wg    sync.WaitGroup
	open  map[net.Conn]struct{}
}

// upConn is one connection at the fake upstream.
type upConn struct {
	net.Conn
	*bufio.Reader
	n  int // the number of the connection, from 1
	up *fakeUpstream
	t  testing.TB
}

func (c *upConn) Read(p []byte) (int, error) { return c.Reader.Read(p) }

// startUpstream serves each connection with handle until the test ends.
func startUpstream(t testing.TB, handle func(c *upConn)) *fakeUpstream {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveListener(t, l, handle)
}

// serveListener is startUpstream on a listener of the test's own.
func serveListener(t testing.TB, l net.Listener, handle func(c *upConn)) *fakeUpstream {
	u := &fakeUpstream{Listener: l, open: map[net.Conn]struct{}{}}
	u.wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			u.serve(t, nc, handle)
		}
	})
	t.Cleanup(u.stop)
	return u
}

func (u *fakeUpstream) serve(t testing.TB, nc net.Conn, handle func(c *upConn)) {
	u.mu.Lock()
	u.conns++
	c := &upConn{Conn: nc, Reader: bufio.NewReader(nc), n: u.conns, up: u, t: t}
	u.open[nc] = struct{}{}
	u.mu.Unlock()
	u.wg.Go(func() {
		defer func() {
			nc.Close()
			u.mu.Lock()
			delete(u.open, nc)
			u.mu.Unlock()
		}()
		handle(c)
	})
}

func (u *fakeUpstream) stop() {
	u.Close()
	u.closeConns()
	u.wg.Wait()
}

// closeConns ends all connections.
func (u *fakeUpstream) closeConns() { u.each(func(c net.Conn) { c.Close() }) }

// each calls f for every open connection.
func (u *fakeUpstream) each(f func(c net.Conn)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.open {
		f(c)
	}
}

// opened returns how many connections are open.
func (u *fakeUpstream) opened() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.open)
}

// note counts headers as those of a request that has arrived.
func (u *fakeUpstream) note(headers string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.heads = append(u.heads, headers)
}

// inMemoryUpstream returns one without a listener; its connections are given to serve.
func inMemoryUpstream() *fakeUpstream { return &fakeUpstream{open: map[net.Conn]struct{}{}} }

// wait waits until all connections have been handled, and so after the listener was closed.
func (u *fakeUpstream) wait() { u.wg.Wait() }

// sends is how many request heads have arrived.
func (u *fakeUpstream) sends() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.heads)
}

// head gives the nth request headers (from 0), with its final empty line.
func (u *fakeUpstream) head(n int) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if n >= len(u.heads) {
		return ""
	}
	return u.heads[n]
}

func (u *fakeUpstream) connections() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.conns
}

// head reads one request headers; "" when the connection ended.
func (c *upConn) head() string {
	var b strings.Builder
	for {
		line, err := c.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return ""
		}
		if line == "\r\n" {
			break
		}
	}
	c.up.note(b.String())
	return b.String()
}

// body reads n bytes.
func (c *upConn) body(n int) string {
	b := make([]byte, n)
	if _, err := io.ReadFull(c.Reader, b); err != nil {
		return ""
	}
	return string(b)
}

// say writes s as it is.
func (c *upConn) say(format string, a ...any) {
	if len(a) > 0 {
		format = fmt.Sprintf(format, a...)
	}
	_, _ = io.WriteString(c.Conn, format)
}

// reset closes so that the other side sees a reset.
func (c *upConn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok { // in memory there is only one way to close
		_ = tcp.SetLinger(0)
	}
	c.Conn.Close()
}

// script answers request after request, on whatever connections, with the
// given raw responses in order; the last one is retried. "" resets.
func script(responses ...string) func(c *upConn) {
	var mu sync.Mutex
	next := 0
	return func(c *upConn) {
		for {
			headers := c.head()
			if headers == "" {
				return
			}
			discardBody(c, headers)
			mu.Lock()
			r := responses[min(next, len(responses)-1)]
			next++
			mu.Unlock()
			if r == "" {
				c.reset()
				return
			}
			c.say("%s", r)
			if strings.Contains(r, "Connection: close") || !strings.Contains(r, "HTTP/1.1 ") {
				return
			}
		}
	}
}

// discardBody reads the body that head announces.
func discardBody(c *upConn, headers string) []byte {
	req, err := http.ReadRequest(bufio.NewReader(io.MultiReader(strings.NewReader(headers), c.Reader)))
	if err != nil {
		return nil
	}
	if req.ContentLength == 0 {
		return nil
	}
	if req.ContentLength > 0 {
		return []byte(c.body(int(req.ContentLength)))
	}
	var all []byte
	for { // chunked, as the proxy writes it
		var size int
		line, err := c.ReadString('\n')
		if err != nil {
			return all
		}
		fmt.Sscanf(line, "%x", &size)
		if size == 0 {
			for line != "\r\n" && err == nil {
				line, err = c.ReadString('\n')
			}
			return all
		}
		all = append(all, c.body(size)...)
		c.body(2)
	}
}

const (
	ok200  = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	bad503 = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy"
	bad429 = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nslow"
)

// recorder is an Observer that remembers.
type recorder struct {
	mu       sync.Mutex
	began    int
	outcomes []policy.Outcome
	codes    []int
	attempts []int
	classes  []policy.Class
	retries  []policy.Reason
	waits    []time.Duration
	held     []time.Duration
	waiting  int

	fallbackFailures  int
	wouldRetry        []policy.Reason
	took              []time.Duration
	hedged, hedgesWon int
	used              [tokens.NumFates]tokens.Count
}

func (r *recorder) lock() func() { r.mu.Lock(); return r.mu.Unlock }

func (r *recorder) RequestBegan() { defer r.lock()(); r.began++ }
func (r *recorder) AttemptDone(c policy.Class, _ int, d time.Duration) {
	defer r.lock()()
	r.took = append(r.took, d)
	r.classes = append(r.classes, c)
}
func (r *recorder) Retry(w policy.Reason)  { defer r.lock()(); r.retries = append(r.retries, w) }
func (r *recorder) Queued(d time.Duration) { defer r.lock()(); r.held = append(r.held, d) }
func (r *recorder) FallbackFailed()        { defer r.lock()(); r.fallbackFailures++ }
func (r *recorder) WouldRetry(w policy.Reason) {
	defer r.lock()()
	r.wouldRetry = append(r.wouldRetry, w)
}
func (r *recorder) WaitBegan() { defer r.lock()(); r.waiting++ }
func (r *recorder) TokensUsed(c tokens.Count, f tokens.Fate) {
	defer r.lock()()
	u := &r.used[f]
	u.Input, u.Cached, u.Output = u.Input+c.Input, u.Cached+c.Cached, u.Output+c.Output
}
func (r *recorder) Hedged()   { defer r.lock()(); r.hedged++ }
func (r *recorder) HedgeWon() { defer r.lock()(); r.hedgesWon++ }
func (r *recorder) WaitEnded(d time.Duration) {
	defer r.lock()()
	r.waiting--
	r.waits = append(r.waits, d)
}
func (r *recorder) RequestDone(_ []byte, code int, o policy.Outcome, _, _ time.Duration, attempts int) {
	defer r.lock()()
	r.outcomes = append(r.outcomes, o)
	r.codes = append(r.codes, code)
	r.attempts = append(r.attempts, attempts)
}
func (r *recorder) Traced(string, int, time.Duration) {}

// always gives all requests of all routes the observer o.
func always(o Observer) func(string) func() Observer {
	return func(string) func() Observer { return func() Observer { return o } }
}

// requests is how many requests began, retried how many retries were counted.
func (r *recorder) requests() int { defer r.lock()(); return r.began }
func (r *recorder) retried() int  { defer r.lock()(); return len(r.retries) }

// outcome waits for the nth outcome (from 0): it is counted after the response.
func (r *recorder) outcome(t testing.TB, n int) policy.Outcome {
	t.Helper()
	for range 3000 {
		r.mu.Lock()
		if n < len(r.outcomes) {
			o := r.outcomes[n]
			r.mu.Unlock()
			return o
		}
		r.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("no outcome number %d within 30 s", n)
	return 0
}

// front is a proxy as its clients see it.
type front struct {
	addr string // of its first listener
	seen *recorder
	t    testing.TB
}

// testProxy is a proxy on loopback in front of a fake upstream.
type testProxy struct {
	*Server
	*front
	config *Config // with which it began
	stop   func()  // ends serving; it returns when everything has ended
	faults uint64  // that the test provoked
}

// testConfig is a configuration like the defaults, with short waits.
func testConfig(t testing.TB, upstreamURL string, seen *recorder) *Config {
	t.Helper()
	target, err := upstream.ParseTarget(upstreamURL)
	if err != nil {
		t.Fatal(err)
	}
	on, err := policy.ParseRetryOn(usualRetryOn)
	if err != nil {
		t.Fatal(err)
	}
	backoff, err := backoff.New("fixed", backoff.Options{Base: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return &Config{
		Listen: []string{"127.0.0.1:0"},
		Default: Route{
			Name:                "default",
			Upstream:            target,
			Forward:             forward.Settings{Host: forward.HostRule{Mode: forward.HostPreserve}},
			Policy:              policy.Policy{RetryOn: on, MaxRetries: 3, Backoff: backoff},
			NoBudget:            true,
			RequestTimeout:      30 * time.Second,
			AttemptTimeout:      10 * time.Second,
			BodyIdleTimeout:     10 * time.Second,
			RetryBufferBytes:    1 << 20,
			ResponseBufferBytes: 64 << 10,
			Guard:               breaker.Options{NoBreaker: true, ConcurrencyLimit: breaker.ConcurrencyLimitOff}, // tests of the queue switch them on
			QueueTimeout:        20 * time.Second,
			QueueMax:            4096,
		},
		Limits:                http1.Limits{HeaderBytes: 64 << 10, Headers: 100},
		ReadHeaderTimeout:     5 * time.Second,
		ClientIdleTimeout:     30 * time.Second,
		WriteTimeout:          10 * time.Second,
		TunnelIdleTimeout:     10 * time.Second,
		RetryBufferTotalBytes: 64 << 20,
		DrainTimeout:          5 * time.Second,
		Observe:               always(seen),
	}
}

// startProxy runs a proxy in front of u; change may alter the configuration.
func startProxy(t testing.TB, u *fakeUpstream, change func(c *Config)) *testProxy {
	t.Helper()
	return startProxyTo(t, "http://"+u.Addr().String(), change)
}

func startProxyTo(t testing.TB, upstreamURL string, change func(c *Config)) *testProxy {
	t.Helper()
	seen := &recorder{}
	c := testConfig(t, upstreamURL, seen)
	if change != nil {
		change(c)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	p := &testProxy{Server: s, config: c}
	t.Cleanup(p.checkNothingIsLeft) // after it has ended
	p.front, p.stop = startServer(t, s, seen)
	return p
}

// server is a proxy that can be started.
type server interface {
	Listen() error
	Addrs() []net.Addr
	Serve(context.Context) error
}

// startServer has s serve until the test ends, or until stop, which returns when everything has ended.
func startServer(t testing.TB, s server, seen *recorder) (f *front, stop func()) {
	t.Helper()
	if err := s.Listen(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return &front{addr: s.Addrs()[0].String(), seen: seen, t: t}, stop
}

// checkNothingIsLeft checks that the proxy, which has ended, gave back all that its requests held.
func (p *testProxy) checkNothingIsLeft() {
	st := p.Stats()
	if n := st.RetryBufferUsed; n != 0 {
		p.t.Errorf("%d bytes of retry buffer were not given back", n)
	}
	for i := range st.Upstreams {
		soon(p.t, "all places given back, that of a probe that just dials, too", func() bool {
			g := p.Stats().Upstreams[i].Guard
			return g.InFlight-g.Abandoned == 0 && g.Queued == 0
		})
	}
	if n := st.Faults; n != p.faults {
		p.t.Errorf("%d faults of the proxy itself, want %d", n, p.faults)
	}
	if n := st.InFlight; n != 0 {
		p.t.Errorf("%d requests still count as in flight", n)
	}
}

// wantFaults checks that n faults of the proxy itself were counted, which the test provoked.
func (p *testProxy) wantFaults(n uint64) {
	p.t.Helper()
	if p.faults = n; p.Stats().Faults != n {
		p.t.Errorf("%d faults counted, want %d", p.Stats().Faults, n)
	}
}

// client is a raw connection to the proxy.
type client struct {
	net.Conn
	r *bufio.Reader
	t testing.TB
}

// dial opens a client's connection; everything on it has to end within a minute.
func (p *front) dial() *client {
	p.t.Helper()
	nc, err := net.Dial("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	p.t.Cleanup(func() { nc.Close() })
	return &client{Conn: nc, r: bufio.NewReader(nc), t: p.t}
}

func (c *client) send(s string) *client {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatalf("send: %v", err)
	}
	return c
}

// response reads one response with its whole body. method matters for HEAD.
func (c *client) response(method string) (*http.Response, string, error) {
	c.t.Helper()
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return nil, "", err
	}
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// want reads one response and checks status and body.
func (c *client) want(status int, body string) *http.Response {
	c.t.Helper()
	res, got, err := c.response("GET")
	if err != nil {
		c.t.Fatalf("response: %v", err)
	}
	if res.StatusCode != status || body != "*" && got != body {
		c.t.Fatalf("got %d %q, want %d %q", res.StatusCode, got, status, body)
	}
	return res
}

// rest reads all that comes until the connection ends.
func (c *client) rest() (string, error) {
	b, err := io.ReadAll(c.r)
	return string(b), err
}
