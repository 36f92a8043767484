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

// drainedAfter begins a drain and gives what a client got and how long after that.
func (m *memory) drainedAfter(ended func() (*http.Response, time.Time)) (*http.Response, time.Duration) {
	began := time.Now()
	over := make(chan error)
	go func() { over <- m.Drain(context.Background()) }()
	res, at := ended()
	<-over
	return res, at.Sub(began)
}

// wantDraining checks that a client was told of the drain that much after its begin.
func wantDraining(t *testing.T, res *http.Response, took, want time.Duration) {
	t.Helper()
	late := took - want
	if res.StatusCode != 503 || res.Header.Get("X-Retryproxy-Reason") != "draining" || late < 0 || late > drainPoll {
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

// Who gets no place before the last part of a drain is told so while there is
// time for it.
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

// Also while others go on being let in, an upstream that is found down in a
// drain is not waited for.
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

// A retry is not sent after a drain began, so it does not wait to be.
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

// Of those who wait for a rate limit, whose turn comes within the drain has it; the
// others are told at once.
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
