package breaker

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// An upstream that sends anything is not silent: neither a response that is not valid nor one that
// does not get ready in time counts as a missing response.
func TestAnUpstreamThatSendsAnythingIsNotSilent(t *testing.T) {
	for name, response := range map[string]string{
		"headers of 70 KB": "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
		"no HTTP":          "SSH-2.0-OpenSSH_9.6\r\n\r\n",
		"headers unended":  "HTTP/1.1 200 OK\r\nX-A: 1\r\n",
		"hints alone":      "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var faulty atomic.Bool
			handle := func(c *peers.Conn) {
				for c.Head() != "" {
					time.Sleep(200 * time.Millisecond)
					if faulty.Load() {
						c.Say("%s", response)
						_, _ = c.EndOfInput()
						return
					}
					c.Say(peers.OK200)
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.Policy.MaxRetries, c.Default.AttemptTimeout, c.Default.AttemptTimeoutHard = 0, time.Second, true
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				for range 50 {
					c.Send(peers.Get("/")).Want(200, "ok")
				}
				faulty.Store(true)
				var asking sync.WaitGroup
				for range 70 {
					c := m.Client()
					asking.Go(func() { _, _, _ = c.Send(peers.Get("/")).Response("GET") })
					time.Sleep(90 * time.Millisecond)
				}
				asking.Wait()
				if g := m.Guard(); g.Opened[breaker.OpenedByStall] > 0 || g.Opened[breaker.OpenedByLost] > 0 || g.Opened[breaker.OpenedByFailing] == 0 {
					t.Errorf("%+v", g)
				}
			})
		})
	}
}
