package breaker

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// oneAtOnce limits the upstream to one request, for which others wait long.
func oneAtOnce(c *proxy.Config) {
	c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
	c.Default.LimitQueueTimeout = time.Minute
	c.DrainTimeout = 20 * time.Second // waits end 2 s before
}

func TestADrainAdmitsRequestsQueuedAtTheLimit(t *testing.T) {
	proxytest.InMemory(t, peers.AnswersAfter(5*time.Second, peers.OK200), oneAtOnce, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Later()
		synctest.Wait() // until it is sent
		waits := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		if res, took := m.DrainedAfter(waits); res.StatusCode != 200 || took != 9*time.Second {
			t.Errorf("%d after %v, want 200 when both were answered in turn, after 9 s; %v", res.StatusCode, took, res.Header)
		}
	})
}

// A request without a permit before the last part of a drain is rejected while there is time for
// it.
func TestADrainThatIsTooShortRejectsRequestsQueuedAtTheLimit(t *testing.T) {
	proxytest.InMemory(t, func(c *peers.Conn) { c.Head(); c.Head() }, oneAtOnce, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Later()
		synctest.Wait() // until it is sent
		waits := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		res, took := m.DrainedAfter(waits)
		peers.WantDraining(t, res, took, 18*time.Second)
	})
}

// If the upstream is found down during a drain, no request waits for it, even while others are
// still admitted.
func TestABreakerThatOpensInADrainEndsWaitsAtTheLimit(t *testing.T) {
	refuses := func(ctx context.Context, _, _ string) (net.Conn, error) {
		time.Sleep(5 * time.Second)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	change := func(c *proxy.Config) { oneAtOnce(c); c.Default.Upstream.Dial = refuses }
	proxytest.InMemory(t, nil, change, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Later()
		synctest.Wait() // until it is sent
		waits := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		res, took := m.DrainedAfter(waits)
		peers.WantDraining(t, res, took, 4*time.Second)
	})
}

// No retry is sent after a drain began, so no retry waits for it.
func TestADrainEndsARetrysWaitAtTheLimit(t *testing.T) {
	handle := func(c *peers.Conn) {
		for c.Head() != "" {
			if c.Up.Sends() == 1 {
				c.Say("%s", peers.Bad503)
				continue
			}
			time.Sleep(5 * time.Second)
			c.Say("%s", peers.OK200)
		}
	}
	change := func(c *proxy.Config) {
		oneAtOnce(c)
		c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: time.Second})
	}
	proxytest.InMemory(t, handle, change, func(t *testing.T, m *proxytest.Memory) {
		retries := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Millisecond)
		m.Client().Send(peers.Get("/")).Later()
		time.Sleep(2 * time.Second)
		res, took := m.DrainedAfter(retries)
		peers.WantDraining(t, res, took, 0)
		if m.Up.Sends() != 2 {
			t.Errorf("%d sends, want one of each client", m.Up.Sends())
		}
	})
}

// Requests that wait for a rate limit get their slot if it comes within the drain; the others are
// rejected at once.
func TestADrainAndTheRateLimitQueue(t *testing.T) {
	up := &peers.Timed{}
	change := func(c *proxy.Config) {
		peers.Rationed("6/m", time.Hour)(c)
		oneAtOnce(c)
		c.Default.RequestTimeout = time.Hour
	}
	proxytest.InMemory(t, up.Handle, change, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		first := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Millisecond)
		second := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Millisecond)
		began := time.Now()
		res, took := m.DrainedAfter(second)
		peers.WantDraining(t, res, took, 0)
		if after := res.Header.Get("Retry-After"); after != "21" {
			t.Errorf("Retry-After %s", after)
		}
		if res, at := first(); res.StatusCode != 200 || at.Sub(began) < 9*time.Second {
			t.Errorf("%d after %v, want 200 when its turn came; %v", res.StatusCode, at.Sub(began), res.Header)
		}
	})
}
