//go:build !race && !poison

package proxy

import (
	"io"
	"net"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// memoryInUse returns the bytes of stacks and of objects after a collection.
func memoryInUse() (stacks, objects int64) {
	runtime.GC()
	runtime.GC() // a sync.Pool keeps over one collection what it has
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64()), int64(s[1].Value.Uint64())
}

// waitingProxy is a proxy whose requests wait, once they have failed, until the test ends. It behaves as if
// many did already.
func waitingProxy(t *testing.T, u *peers.Upstream) *testProxy {
	p := startProxy(t, u, func(c *Config) {
		c.Default.Policy.Backoff, c.Default.RequestTimeout = backoff.Fixed{Base: 5 * time.Minute}, time.Hour
	})
	p.process.Waiting.Store(request.Crowd)
	return p
}

// sendOn sends a request on a connection of its own, which takes little memory.
func sendOn(p *peers.Front, request string) {
	p.T.Helper()
	c, err := net.Dial("tcp", p.Addr)
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, request); err != nil {
		p.T.Fatal(err)
	}
}

// A goroutine keeps the stack that its deepest call needed. So each request in backoff takes twice the stack
// if one call before its wait was deep.
func TestAWaitingRequestKeepsLittleMemoryOfItsStack(t *testing.T) {
	const n = 200
	const end = "Content-Length: 4\r\nConnection: close\r\n\r\nbusy"
	for name, response := range map[string]string{
		"Retry-After": "HTTP/1.1 503 No\r\nRetry-After: 60\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n" + end,
		"rate limits": "HTTP/1.1 429 No\r\nRateLimit: \"a\";r=0;t=60\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 60\r\n" + end,
	} {
		t.Run(name, func(t *testing.T) {
			p := waitingProxy(t, peers.StartUpstream(t, peers.Script(response)))
			before, _ := memoryInUse()
			for i := range int64(n) { // one after the other: many goroutines that end would leave gaps between stacks
				sendOn(p.Front, peers.Get("/"))
				peers.Soon(t, "the request to wait", func() bool { return p.process.Waiting.Load() == request.Crowd+i+1 })
			}
			if after, _ := memoryInUse(); after-before > n*6<<10 {
				t.Errorf("%d bytes, expected 4 KiB and what gaps there are", (after-before)/n)
			}
		})
	}
}

// The buffers of an attempt are free while its request waits, even if many attempts were in flight at once.
func TestAWaitingRequestKeepsLittleMemoryOfItsAttempt(t *testing.T) {
	const n = 200
	answer := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		<-answer
		_, _ = io.WriteString(c, "HTTP/1.1 503 No\r\nRetry-After: 60\r\nContent-Length: 50\r\nConnection: close\r\n\r\n"+strings.Repeat("x", 50))
	})
	p := waitingProxy(t, u)
	_, before := memoryInUse()
	for range n {
		sendOn(p.Front, peers.Get("/"))
	}
	peers.Soon(t, "all attempts to be in flight", func() bool { return u.Sends() == n })
	close(answer)
	peers.Soon(t, "all requests to wait", func() bool { return p.process.Waiting.Load() == request.Crowd+n && p.Seen.WaitsBegun() == n })
	if _, after := memoryInUse(); after-before > n*8<<10 {
		t.Errorf("%d bytes with its client, expected 6 KiB", (after-before)/n)
	}
}
