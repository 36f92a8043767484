package proxy

import (
	"context"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// oneAtOnce limits the upstream to one request, for which others wait long.
func oneAtOnce(c *Config) {
	c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
	c.Default.LimitQueueTimeout = time.Minute
	c.DrainTimeout = 20 * time.Second // waits end 2 s before
}

// drainedAfter begins a drain and returns the client's response and how long after that it came.
func (m *memory) drainedAfter(ended func() (*http.Response, time.Time)) (*http.Response, time.Duration) {
	began := time.Now()
	over := make(chan error)
	go func() { over <- m.Drain(context.Background()) }()
	res, at := ended()
	<-over
	return res, at.Sub(began)
}

// wantDraining checks that a client got the reason draining that long after the drain began.
func wantDraining(t *testing.T, res *http.Response, took, want time.Duration) {
	t.Helper()
	late := took - want
	if res.StatusCode != 503 || res.Header.Get("X-Retryproxy-Reason") != "draining" || late < 0 || late > 20*time.Millisecond {
		t.Errorf("%d after %v, want 503 after %v; %v", res.StatusCode, took, want, res.Header)
	}
}

func TestADrainAdmitsRequestsQueuedAtTheLimit(t *testing.T) {
	inMemory(t, slow(5*time.Second, ok200), oneAtOnce, func(t *testing.T, m *memory) {
		m.client().send(get("/")).later()
		synctest.Wait() // until it is sent
		waits := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		if res, took := m.drainedAfter(waits); res.StatusCode != 200 || took != 9*time.Second {
			t.Errorf("%d after %v, want 200 when both were answered in turn, after 9 s; %v", res.StatusCode, took, res.Header)
		}
	})
}

// A request without a permit before the last part of a drain is rejected while there is time for
// it.
func TestADrainThatIsTooShortRejectsRequestsQueuedAtTheLimit(t *testing.T) {
	inMemory(t, func(c *upConn) { c.head(); c.head() }, oneAtOnce, func(t *testing.T, m *memory) {
		m.client().send(get("/")).later()
		synctest.Wait() // until it is sent
		waits := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		res, took := m.drainedAfter(waits)
		wantDraining(t, res, took, 18*time.Second)
	})
}

// If the upstream is found down during a drain, no request waits for it, even while others are
// still admitted.
func TestABreakerThatOpensInADrainEndsWaitsAtTheLimit(t *testing.T) {
	refuses := func(ctx context.Context, _, _ string) (net.Conn, error) {
		time.Sleep(5 * time.Second)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	change := func(c *Config) { oneAtOnce(c); c.Default.Upstream.Dial = refuses }
	inMemory(t, nil, change, func(t *testing.T, m *memory) {
		m.client().send(get("/")).later()
		synctest.Wait() // until it is sent
		waits := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		res, took := m.drainedAfter(waits)
		wantDraining(t, res, took, 4*time.Second)
	})
}

// No retry is sent after a drain began, so no retry waits for it.
func TestADrainEndsARetrysWaitAtTheLimit(t *testing.T) {
	handle := func(c *upConn) {
		for c.head() != "" {
			if c.up.sends() == 1 {
				c.say("%s", bad503)
				continue
			}
			time.Sleep(5 * time.Second)
			c.say("%s", ok200)
		}
	}
	change := func(c *Config) {
		oneAtOnce(c)
		c.Default.Policy.Backoff, _ = backoff.New("fixed", backoff.Options{Base: time.Second})
	}
	inMemory(t, handle, change, func(t *testing.T, m *memory) {
		retries := m.client().send(get("/")).later()
		time.Sleep(time.Millisecond)
		m.client().send(get("/")).later()
		time.Sleep(2 * time.Second)
		res, took := m.drainedAfter(retries)
		wantDraining(t, res, took, 0)
		if m.up.sends() != 2 {
			t.Errorf("%d sends, want one of each client", m.up.sends())
		}
	})
}

// Requests that wait for a rate limit get their slot if it comes within the drain; the others are
// rejected at once.
func TestADrainAndTheRateLimitQueue(t *testing.T) {
	up := &timed{}
	change := func(c *Config) { rationed("6/m", time.Hour)(c); oneAtOnce(c); c.Default.RequestTimeout = time.Hour }
	inMemory(t, up.handle, change, func(t *testing.T, m *memory) {
		m.client().send(get("/")).want(200, "ok")
		first := m.client().send(get("/")).later()
		time.Sleep(time.Millisecond)
		second := m.client().send(get("/")).later()
		time.Sleep(time.Millisecond)
		began := time.Now()
		res, took := m.drainedAfter(second)
		wantDraining(t, res, took, 0)
		if after := res.Header.Get("Retry-After"); after != "21" {
			t.Errorf("Retry-After %s", after)
		}
		if res, at := first(); res.StatusCode != 200 || at.Sub(began) < 9*time.Second {
			t.Errorf("%d after %v, want 200 when its turn came; %v", res.StatusCode, at.Sub(began), res.Header)
		}
	})
}
