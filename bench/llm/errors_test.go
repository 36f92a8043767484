package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/errorbody"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// ownError is an error response of retryproxy's own and a request that gets it.
type ownError struct {
	name   string
	status int
	code   string
	http1  bool // HTTP/2 cannot have it
	http2  bool // HTTP/1.1 cannot have it
	env    []string
	set    func(c *proxy.Config)
	change func(r *http.Request)                     // of the client's request; nil: none
	raw    string                                    // is sent instead of the client's request; ""
	before func(t *testing.T, over way2, at started) // is done before; nil: nothing
}

// way2 is how a client's requests reach the proxy: the version of HTTP.
type way2 bool

const (
	overHTTP1 way2 = false
	overHTTP2 way2 = true
)

func (w way2) String() string {
	if w == overHTTP2 {
		return "HTTP2"
	}
	return "HTTP1"
}

// upstreamDoes is a header with what the upstream does with a request: lose it, or hang.
const upstreamDoes = "X-Does"

func does(what string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(upstreamDoes, what) }
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = []string{value} }
}

var ownErrors = []ownError{
	{name: "framing header in disguise", status: 400, code: "bad_header", change: with("Content_length", "3")},
	{name: "no host", status: 400, code: "missing_host", http1: true, raw: "GET / HTTP/1.1\r\n\r\n"},
	{name: "another host", status: 403, code: "other_host", http1: true, env: []string{"RETRYPROXY_POSITION=outbound"}, raw: "GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n"},
	{name: "TRACE", status: 405, code: "max_forwards", change: func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = "TRACE", nil, 0
		r.Header.Set("Max-Forwards", "0")
	}},
	{name: "headers that never come", status: 408, code: "request_timeout", http1: true, raw: "GET / HTTP/1.1\r\n",
		set: func(c *proxy.Config) { c.ReadHeaderTimeout = 20 * time.Millisecond }},
	{name: "a body that never comes", status: 408, code: "request_timeout", set: func(c *proxy.Config) { c.Default.BodyIdleTimeout = 20 * time.Millisecond },
		change: func(r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			r.Body, r.ContentLength = struct {
				silent
				io.Closer
			}{silent{ctx}, closer(cancel)}, 5
		}},
	{name: "a path that is too long", status: 414, code: "target_too_long", change: func(r *http.Request) {
		r.URL.Path = "/" + strings.Repeat("x", http1.DefaultHeaderBytes)
	}},
	{name: "an unknown expectation", status: 417, code: "bad_expect", change: with("Expect", "cow")},
	{name: "rate limit", status: 429, code: "rate_limited", env: []string{"RETRYPROXY_RATE_LIMIT=1/h"}, before: request},
	{name: "headers that are too large", status: 431, code: "header_too_large", http1: true,
		change: with("X-Large", strings.Repeat("x", http1.DefaultHeaderBytes))},
	{name: "headers that are too large for HTTP/2", status: 431, code: "header_too_large", http2: true,
		change: with("X-Large", strings.Repeat("x", http1.DefaultHeaderBytes+32*http1.DefaultHeaders))},
	{name: "a method that is too long", status: 501, code: "method_too_long", change: func(r *http.Request) { r.Method = strings.Repeat("X", 100) }},
	{name: "a lost connection", status: 502, code: "not_idempotent", change: does("lose")},
	{name: "open breaker", status: 503, code: "fail_fast", before: request,
		env: []string{"RETRYPROXY_UPSTREAM=http://127.0.0.1:1", "RETRYPROXY_BREAKER=fail-fast", "RETRYPROXY_MAX_RETRIES=0"}},
	{name: "no client slot", status: 503, code: "no_client_slot", http1: true, set: func(c *proxy.Config) { c.MaxConnections = 1 }, raw: evicted},
	{name: "no stream slot", status: 503, code: "no_stream_slot", http2: true, set: func(c *proxy.Config) { c.ClientMemory = 256 << 10 }, before: hang},
	{name: "silence", status: 504, code: "not_idempotent", set: func(c *proxy.Config) { c.Default.RequestTimeout = 50 * time.Millisecond }, change: does("hang")},
	{name: "another version of HTTP", status: 505, code: "bad_version", http1: true, raw: "GET / HTTP/3.0\r\nHost: a\r\n\r\n"},
}

// evicted stands for a connection without a request, which another one ends.
const evicted = "evicted"

// The vendors' clients read every response of retryproxy's own, over both versions of HTTP: its status, the
// type, the reason as the code, the text and the request id, whether they asked for a stream or not.
func TestVendorsClientsReadOwnErrors(t *testing.T) {
	t.Parallel()
	for _, e := range ownErrors {
		for _, over := range []way2{overHTTP1, overHTTP2} {
			if e.http1 && over == overHTTP2 || e.http2 && over == overHTTP1 {
				continue
			}
			t.Run(strings.ReplaceAll(e.name, " ", "_")+"/"+over.String(), func(t *testing.T) {
				t.Parallel()
				at := e.start(t)
				if e.before != nil {
					e.before(t, over, at)
				}
				for _, stream := range []bool{false, true} {
					e.check(t, &changed{e: &e, over: over, addr: at.addr, transport: over.transport(t)}, stream)
				}
			})
		}
	}
}

// Each status that retryproxy itself can respond with is in the table.
func TestOwnErrorsHaveEveryStatus(t *testing.T) {
	t.Parallel()
	var seen []int
	for _, e := range ownErrors {
		seen = append(seen, e.status)
	}
	for _, why := range http1.AllRefusals() {
		if !slices.Contains(seen, why.Status()) {
			t.Errorf("%v: no row has %d", why, why.Status())
		}
	}
	for _, status := range []int{405, 408, 429, 502, 503, 504} { // those of package exchange and admission
		if !slices.Contains(seen, status) {
			t.Errorf("no row has %d", status)
		}
	}
}

// started is a proxy before an upstream.
type started struct {
	addr string
	hung chan struct{} // gets one for each request that hangs at the upstream
}

// start starts the proxy before an upstream.
func (e *ownError) start(t *testing.T) started {
	hung := make(chan struct{}, 100)
	up := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(upstreamDoes) {
		case "lose":
			panic(http.ErrAbortHandler)
		case "hang":
			_, _ = io.Copy(io.Discard, r.Body)
			hung <- struct{}{}
			<-r.Context().Done()
		}
	}))
	t.Cleanup(up.Close)
	env := append([]string{"RETRYPROXY_UPSTREAM=" + up.URL, "RETRYPROXY_LISTEN=127.0.0.1:0", "RETRYPROXY_PROFILE=llm"}, e.env...)
	s, problems := config.Load(env)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c, err := config.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	if e.set != nil {
		e.set(c)
	}
	p, err := proxy.New(c)
	if err == nil {
		err = p.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return started{p.Addrs()[0].String(), hung}
}

// check asks once by each vendor's client.
func (e *ownError) check(t *testing.T, by http.RoundTripper, stream bool) {
	const prefix = "retryproxy: "
	var a *openai.Error
	if err := askOnce(t, newOpenAI(by, 0), stream); !errors.As(err, &a) {
		t.Errorf("openai: %v", err)
	} else if a.StatusCode != e.status || a.Type != errorbody.TypeOf(e.status) || a.Code != e.code || !strings.HasPrefix(a.Message, prefix) || a.Param != "" ||
		a.Response.Header.Get("X-Request-Id") == "" {
		t.Errorf("openai: %d %+v %v", a.StatusCode, a, a.Response.Header)
	}
	var b *anthropic.Error
	if err := askOnce(t, newAnthropic(by, 0), stream); !errors.As(err, &b) {
		t.Errorf("anthropic: %v", err)
	} else if b.StatusCode != e.status || string(b.Type()) != errorbody.TypeOf(e.status) || b.RequestID == "" ||
		!strings.Contains(b.RawJSON(), `"message":"`+prefix) || !strings.Contains(b.RawJSON(), `"request_id":"`+b.RequestID+`"`) {
		t.Errorf("anthropic: %d %+v %v", b.StatusCode, b, b.Response.Header)
	}
}

func askOnce(t *testing.T, v vendor, stream bool) error {
	ask := v.whole
	if stream {
		ask = v.stream
	}
	return ask(t.Context(), 8, func(string) {})
}

// transport returns a transport of that version with a connection of its own.
func (w way2) transport(t *testing.T) *http.Transport {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(w == overHTTP1)
	transport.Protocols.SetUnencryptedHTTP2(w == overHTTP2)
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// changed sends the requests of a vendor's client as an ownError has them.
type changed struct {
	e         *ownError
	over      way2
	addr      string
	transport *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (c *changed) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.e.raw != "" {
		return c.raw(r)
	}
	r = r.Clone(r.Context())
	r.URL.Host = c.addr
	if c.e.change != nil {
		c.e.change(r)
	}
	return c.transport.RoundTrip(r)
}

// raw sends bytes of the ownError and reads the response.
func (c *changed) raw(r *http.Request) (*http.Response, error) {
	nc, err := net.Dial("tcp", c.addr)
	if err != nil {
		return nil, err
	}
	_ = nc.SetDeadline(time.Now().Add(time.Minute))
	if c.e.raw != evicted {
		_, err = io.WriteString(nc, c.e.raw)
	} else {
		var other net.Conn
		if other, err = net.Dial("tcp", c.addr); err == nil {
			defer other.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(nc), r)
	if err != nil {
		return nil, err
	}
	res.Body = struct {
		io.Reader
		io.Closer
	}{res.Body, nc}
	return res, nil
}

// request sends a request and waits for its response.
func request(t *testing.T, over way2, at started) {
	res, err := over.transport(t).RoundTrip(get(t, at.addr))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// hang begins a request that lasts as long as the test, and waits until the proxy has it.
func hang(t *testing.T, over way2, at started) {
	r := get(t, at.addr)
	does("hang")(r)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if res, err := over.transport(t).RoundTrip(r); err == nil {
			_ = res.Body.Close()
		}
	}()
	t.Cleanup(func() { <-ended })
	<-at.hung
}

func get(t *testing.T, addr string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// silent is a body that never comes.
type silent struct{ closed context.Context }

func (b silent) Read([]byte) (int, error) {
	<-b.closed.Done()
	return 0, b.closed.Err()
}

type closer func()

func (c closer) Close() error { c(); return nil }
