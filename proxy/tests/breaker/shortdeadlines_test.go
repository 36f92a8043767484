package breaker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A client's short deadline is no attempt timeout. Like a client that leaves, it is no evidence
// about the upstream until the response is far overdue.
func TestClientsWithShortDeadlinesDoNotOpenTheBreaker(t *testing.T) {
	for _, tc := range []struct {
		name    string
		field   string
		latency time.Duration // from then on
		timeout time.Duration // of attempts
		want    breaker.OpenedBy
	}{
		{"less than a response takes", "X-Request-Timeout: 5ms", 10 * time.Millisecond, 10 * time.Second, breaker.OpenedByNothing},
		{"less than a response takes, as gRPC says it", "Grpc-Timeout: 5m", 10 * time.Millisecond, 10 * time.Second, breaker.OpenedByNothing},
		{"far more than a response takes", "X-Request-Timeout: 2s", time.Hour, 10 * time.Second, breaker.OpenedByStall},
		{"more than the attempt timeout", "X-Request-Timeout: 1s", time.Hour, 5 * time.Millisecond, breaker.OpenedByStall},
	} {
		t.Run(tc.name, func(t *testing.T) {
			handle := func(c *peers.Conn) {
				for headers := c.Head(); headers != ""; headers = c.Head() {
					if strings.Contains(headers, "/slow") {
						time.Sleep(tc.latency)
					} else {
						time.Sleep(time.Millisecond)
					}
					c.Say(peers.OK200)
				}
			}
			proxytest.InMemory(t, handle, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.AttemptTimeout = tc.timeout
			}, func(t *testing.T, m *proxytest.Memory) {
				c := m.Client()
				for range 100 {
					c.Send(peers.Get("/")).Want(200, "ok")
				}
				time.Sleep(6 * time.Second) // what went well is long ago
				for i := range 60 {
					hurried := m.Client().Send(peers.RequestText(fmt.Sprintf("GET /slow/%d HTTP/1.1", i), "Host: a", tc.field))
					t.Cleanup(func() { hurried.Close() })
					time.Sleep(20 * time.Millisecond)
					if closed := m.Guard().Breaker != breaker.Closed; i == 40 && closed != (tc.timeout < time.Second) {
						t.Errorf("after 820 ms: closed %v", closed)
					}
				}
				time.Sleep(3 * time.Second)
				if got := m.Guard().OpenedBy; got != tc.want {
					t.Errorf("closed by %v, want %v: %+v", got, tc.want, m.Guard())
				}
				if tc.latency == time.Hour {
					time.Sleep(time.Hour) // the handlers end
				}
			})
		})
	}
}
