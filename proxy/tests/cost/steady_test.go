package cost

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/metrics"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// echoServer answers every head it sees with the next of answers, without
// allocating. bodyBytes of body follow each head.
func echoServer(t testing.TB, bodyBytes int, responses ...string) *peers.Upstream {
	raw := make([][]byte, len(responses))
	for i := range responses {
		raw[i] = []byte(responses[i])
	}
	end := []byte("\r\n\r\n")
	return peers.StartUpstream(t, func(c *peers.Conn) {
		buf := make([]byte, 64<<10)
		have, n := 0, 0
		for {
			m, err := c.Conn.Read(buf[have:])
			if err != nil {
				return
			}
			have += m
			for {
				i := bytes.Index(buf[:have], end)
				if i < 0 || have < i+len(end)+bodyBytes {
					break
				}
				have = copy(buf, buf[i+len(end)+bodyBytes:have])
				if _, err := c.Conn.Write(raw[n%len(raw)]); err != nil {
					return
				}
				n++
			}
		}
	})
}

// roundTrips sends the same request over and over on one connection.
func roundTrips(t testing.TB, nc net.Conn, request []byte, response int) func() {
	buf := make([]byte, response)
	return func() {
		if _, err := nc.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(nc, buf); err != nil {
			t.Fatal(err)
		}
	}
}

const steadyOK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\nok"

type steadyCase struct {
	name    string
	request string
	body    int
	answers []string
}

func steadyCases() []steadyCase {
	headers := "Host: app.test\r\nUser-Agent: steady/1\r\nAccept: */*\r\nAccept-Encoding: gzip\r\nAuthorization: Bearer abcdefghijklmnop\r\n"
	return []steadyCase{
		{"get", "GET /api/items?id=1 HTTP/1.1\r\n" + headers + "\r\n", 0, []string{steadyOK}},
		{"post 2k", "POST /api HTTP/1.1\r\n" + headers + "Content-Length: 2048\r\n\r\n" + strings.Repeat("x", 2048), 2048, []string{steadyOK}},
		{"post 16k", "POST /api HTTP/1.1\r\n" + headers + "Content-Length: 16384\r\n\r\n" + strings.Repeat("x", 16384), 16384, []string{steadyOK}},
		{"get with deadlines", "GET /api HTTP/1.1\r\n" + headers + "X-Request-Timeout: 2.5\r\nGrpc-Timeout: 5S\r\nX-Envoy-Expected-Rq-Timeout-Ms: 4000\r\n\r\n", 0, []string{steadyOK}},
		{"retried get", "GET /api HTTP/1.1\r\n" + headers + "\r\n", 0, []string{peers.Bad503, steadyOK}},
	}
}

// steadyProxy is a proxy with real metrics and no waits between attempts.
func steadyProxy(t testing.TB, u *peers.Upstream) *proxytest.Proxy {
	m := metrics.New(metrics.Options{})
	none, err := backoff.New("none", backoff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return proxytest.Start(t, u, func(c *proxy.Config) {
		peers.SpeakHTTP2(c)
		c.Observe = func(name string) func() proxy.Observer {
			r := m.Route(name)
			return func() proxy.Observer { return r.Near() }
		}
		c.Default.Policy.Backoff = none
		c.Default.NoBudget = false
		c.Default.Budget = budget.Config{Ratio: 1, MinPerSecond: 1e4, Burst: 1e6}
	})
}

// measureAnswer gives the length of the proxy's whole answer to request, once
// the attempts count in it has its steady width.
func measureAnswer(t testing.TB, nc net.Conn, request []byte) int {
	t.Helper()
	if _, err := nc.Write(request); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n := 0
	for !bytes.HasSuffix(buf[:n], []byte("\r\n\r\nok")) {
		m, err := nc.Read(buf[n:])
		if err != nil {
			t.Fatalf("%v after %q", err, buf[:n])
		}
		n += m
	}
	return n
}

// wantNoAllocations runs do a thousand times.
func wantNoAllocations(t *testing.T, do func()) {
	t.Helper()
	// A garbage collection empties the buffer pools now and then, and
	// the race detector drops pooled buffers at random.
	if per := allocationsOf(do); per > allowedAllocs {
		t.Errorf("%.3f allocations per request", per)
	}
}

// allocationsOf returns the allocations of one of a thousand calls of do.
func allocationsOf(do func()) float64 {
	const rounds = 1000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		do()
	}
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / rounds
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, tc := range steadyCases() {
		t.Run(tc.name, func(t *testing.T) {
			u := echoServer(t, tc.body, tc.answers...)
			p := steadyProxy(t, u)
			c := p.Dial()
			request := []byte(tc.request)
			do := roundTrips(t, c.Conn, request, measureAnswer(t, c.Conn, request))
			for range 50 {
				do()
			}
			wantNoAllocations(t, do)
		})
	}
}

// A hedge that is never due costs nothing that lasts.
func TestSteadyStateDoesNotAllocateWithHedging(t *testing.T) {
	for _, after := range []string{"5m", "p95"} {
		t.Run(after, func(t *testing.T) {
			p := proxytest.Start(t, echoServer(t, 0, steadyOK), func(c *proxy.Config) {
				c.Default.HedgeAfter = peers.HedgeAfter(t, after)
				c.Default.NoBudget, c.Default.Budget = false, budget.Config{} // nothing is sent, however slow the machine
				c.Observe = peers.Always(settings.NoObserver{})
				c.Default.AttemptTimeout, c.Default.RequestTimeout = 0, 0
			})
			c := p.Dial()
			request := []byte(peers.Get("/"))
			do := roundTrips(t, c.Conn, request, measureAnswer(t, c.Conn, request))
			for range 500 {
				do()
			}
			wantNoAllocations(t, do)
		})
	}
}

func BenchmarkProxied(b *testing.B) {
	for _, tc := range steadyCases() {
		b.Run(strings.ReplaceAll(tc.name, " ", "-"), func(b *testing.B) {
			u := echoServer(b, tc.body, tc.answers...)
			p := steadyProxy(b, u)
			c := p.Dial()
			request := []byte(tc.request)
			do := roundTrips(b, c.Conn, request, measureAnswer(b, c.Conn, request))
			b.ReportAllocs()
			for b.Loop() {
				do()
			}
		})
	}
}
