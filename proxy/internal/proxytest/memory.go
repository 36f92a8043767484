package proxytest

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// Memory runs a proxy between in-memory connections in fake time. Each dialled
// connection is handled by handle.
type Memory struct {
	*Proxy
	Up *peers.Upstream
	T  *testing.T
}

// InMemory calls test in a bubble of fake time.
func InMemory(t *testing.T, handle func(c *peers.Conn), change func(c *proxy.Config), test func(t *testing.T, m *Memory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		u := peers.NewUpstreamInMemory()
		seen := &peers.Recorder{}
		c := peers.NewConfig(t, "http://upstream.test:80", seen)
		c.Default.Upstream.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			u.Serve(t, peers.Dialled{Conn: theirs, Address: address}, handle)
			return ours, nil
		}
		c.Default.Upstream.Resolve = peers.Resolve
		if change != nil {
			change(c)
		}
		s, err := proxy.New(c)
		if err != nil {
			t.Fatal(err)
		}
		m := &Memory{Proxy: &Proxy{Server: s, Front: &peers.Front{Seen: seen, T: t}, Config: c}, Up: u, T: t}
		m.Stop = func() { // without listeners, Serve just ends whatever there is
			over, cancel := context.WithCancel(context.Background())
			cancel()
			_ = s.Serve(over)
			synctest.Wait()
		}
		test(t, m)
		m.Stop()
		time.Sleep(time.Second) // until every request has noticed; one that has not would dial again when its connection is closed
		u.CloseConns()
		synctest.Wait()
		if n := s.Stats().RetryBufferUsed; n != 0 {
			t.Errorf("%d bytes of retry buffer were not given back", n)
		}
	})
}

// Client opens a client's connection.
func (m *Memory) Client() *peers.Client {
	theirs, ours := net.Pipe()
	go m.ServeConn(ours, "")
	m.T.Cleanup(func() { theirs.Close() })
	return &peers.Client{Conn: theirs, Reader: bufio.NewReader(theirs), T: m.T}
}

// DrainedAfter begins a drain and returns the client's response and how long after that it came.
func (m *Memory) DrainedAfter(ended func() (*http.Response, time.Time)) (*http.Response, time.Duration) {
	began := time.Now()
	over := make(chan error)
	go func() { over <- m.Drain(context.Background()) }()
	res, at := ended()
	<-over
	return res, at.Sub(began)
}

// InMemoryWithFallback is InMemory with a fallback upstream.
func InMemoryWithFallback(t *testing.T, handle, spare func(c *peers.Conn), change func(c *proxy.Config), test func(t *testing.T, m *Memory, s *peers.FallbackServer)) {
	t.Helper()
	s := &peers.FallbackServer{}
	InMemory(t, handle, func(c *proxy.Config) {
		s.Upstream = peers.NewUpstreamInMemory()
		c.Default.Policy.MaxRetries = 0
		c.Default.Fallbacks = []proxy.Fallback{s.Fallback(t, "spare.test", spare)}
		if change != nil {
			change(c)
		}
	}, func(t *testing.T, m *Memory) {
		test(t, m, s)
		m.Stop()
		synctest.Wait()
		s.CloseConns()
	})
}

// RoutePauseKey returns the key under which processes share the pauses of the default route.
func RoutePauseKey(t *testing.T) (key uint64) {
	t.Helper()
	InMemory(t, peers.Script(peers.RawResponse(429, "Retry-After: 50")), func(c *proxy.Config) {
		peers.SharedPause("route")(c)
		c.RateLimitPauseBegan = func(began uint64, _ time.Duration) { key = began }
	}, func(t *testing.T, m *Memory) { m.Client().Send(peers.Get("/")).Want(429, "*") })
	return key
}
