package observed

import (
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A wait of 0 counts: without it, the mean of the waits is too high.
func TestAWaitOfZeroIsCounted(t *testing.T) {
	proxytest.InMemory(t, peers.Script(peers.Bad503, peers.Bad503, peers.OK200), func(c *proxy.Config) { c.Default.Policy.Backoff = nil }, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if !slices.Equal(m.Seen.Waits, []time.Duration{0, 0}) || m.Seen.Waiting != 0 {
			t.Errorf("waits %v, %d waiting", m.Seen.Waits, m.Seen.Waiting)
		}
	})
}

// A 5xx that is not retried is no success.
func TestAnErrorThatIsNotRetriedIsNotOK(t *testing.T) {
	on, err := policy.ParseRetryOn("503")
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]policy.Class{"200": policy.ClassNone, "404": policy.ClassNone, "500": policy.Unknown, "501": policy.Unknown, "505": policy.Unknown, "511": policy.Unknown} {
		proxytest.InMemory(t, peers.Script("HTTP/1.1 "+status+" X\r\nContent-Length: 0\r\n\r\n"), func(c *proxy.Config) { c.Default.Policy.RetryOn = on }, func(t *testing.T, m *proxytest.Memory) {
			if _, _, err := m.Client().Send(peers.Get("/")).Response("GET"); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(m.Seen.Classes, []policy.Class{want}) || len(m.Seen.Retries) > 0 {
				t.Errorf("%s: classes %v, %d retries", status, m.Seen.Classes, len(m.Seen.Retries))
			}
		})
	}
}
