package admission

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// behavior is what an upstream does with a connection on which nothing is sent: k it keeps it, c it closes it,
// s it sends a byte and keeps it, r it refuses it. The last one repeats.
type behavior string

// dial is the upstream's end of a dial, the n-th from 0.
func (b behavior) dial(n int) (net.Conn, error) {
	do := b[min(n, len(b)-1)]
	if do == 'r' {
		return nil, syscall.ECONNREFUSED
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		switch do {
		case 's':
			_, _ = far.Write([]byte("x"))
			fallthrough
		case 'k':
			_, _ = far.Read(make([]byte, 100)) // until the other side closes, or asks
		}
	}()
	return near, nil
}

// probedQueue calls test with the queue of an upstream that behaves so.
func probedQueue(t *testing.T, b behavior, p Probe, test func(q *Queue, dials *atomic.Int32)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		var dials atomic.Int32
		var draining atomic.Bool
		c := clock.New()
		target := upstream.Target{Network: "tcp", Address: "10.0.0.1:80", Dial: func(context.Context, string, string) (net.Conn, error) {
			return b.dial(int(dials.Add(1)) - 1)
		}}
		pool := upstream.NewGroup(target, upstream.Options{})
		q := New(Options{Pool: pool, Probe: p, Max: 10, Clock: c, Draining: &draining, Failures: NewDialFailures(zap.NewNop(), "a")})
		test(q, &dials)
		q.Close()
		pool.Close()
	})
}

// lose lets an attempt lose its connection.
func (q *Queue) lose(t *testing.T) {
	t.Helper()
	permit, ok := q.AcquireNow(q.elapsed())
	if !ok {
		t.Fatal("no permit")
	}
	q.HandleSignal(q.Guard.Release(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Reset}))
}

// After a lost connection the upstream is down if it keeps none of seven.
func TestALostConnectionIsCheckedByOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		behavior behavior
		health   string
		dials    int32
		state    breaker.State
	}{
		"closes all":         {"c", "", 7, breaker.Open},
		"refuses all":        {"r", "", 7, breaker.Open},
		"keeps the first":    {"k", "", 1, breaker.Closed},
		"keeps the last":     {"cccccck", "", 7, breaker.Closed},
		"speaks first":       {"s", "", 1, breaker.Closed},
		"with a health path": {"k", "/healthy", 1, breaker.Closed},
	} {
		probedQueue(t, tc.behavior, Probe{Path: tc.health}, func(q *Queue, dials *atomic.Int32) {
			before := time.Now()
			q.lose(t)
			for q.Guard.State().Breaker == breaker.Closed && time.Since(before) < 100*time.Millisecond {
				time.Sleep(time.Millisecond)
			}
			if n, s := dials.Load(), q.Guard.State().Breaker; n != tc.dials || s != tc.state {
				t.Errorf("%s: %d dials, the breaker is %v", name, n, s)
			}
			up := q.pool.TryPooled(&upstream.GetOptions{})
			if kept := strings.HasSuffix(string(tc.behavior), "k"); kept != (up != nil) {
				t.Errorf("%s: in the pool is %v", name, up)
			} else if kept {
				up.Abort()
			}
			if took := time.Since(before); strings.HasPrefix(string(tc.behavior), "c") && tc.state == breaker.Open && took > 5*time.Millisecond {
				t.Errorf("%s: after %v", name, took)
			}
		})
	}
}

// The breaker closes when a connection lives. Each probe is one connection.
func TestAProbeIsAConnectionThatTheUpstreamKeeps(t *testing.T) {
	probedQueue(t, "cccccccccck", Probe{}, func(q *Queue, dials *atomic.Int32) {
		q.lose(t)
		time.Sleep(5 * time.Millisecond)
		for n := int32(8); n <= 10; n++ {
			for dials.Load() < n {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(keptFor - time.Millisecond)
			if got, s := dials.Load(), q.Guard.State(); got != n || s.Breaker == breaker.SlowStart {
				t.Errorf("%d dials instead of %d, the breaker is %v", got, n, s.Breaker)
			}
		}
		for dials.Load() < 11 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(keptFor - 2*time.Millisecond)
		if s := q.Guard.State(); s.Breaker != breaker.HalfOpen {
			t.Errorf("a new connection, and the breaker is %v", s.Breaker)
		}
		time.Sleep(3 * time.Millisecond)
		if s := q.Guard.State(); s.Breaker != breaker.SlowStart {
			t.Errorf("the connection is kept, and the breaker is %v", s.Breaker)
		}
	})
}

// An upstream that allows no further connection is not down while it keeps an idle one.
func TestAnIdleConnectionShowsThatTheUpstreamKeepsConnections(t *testing.T) {
	probedQueue(t, "kc", Probe{}, func(q *Queue, dials *atomic.Int32) {
		up, err := q.dialOnce(context.Background(), upstream.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		up.Release(0)
		q.lose(t)
		time.Sleep(200 * time.Millisecond)
		if s := q.Guard.State(); s.Breaker != breaker.Closed || dials.Load() != 2 {
			t.Errorf("%d dials, the breaker is %v", dials.Load(), s.Breaker)
		}
	})
}

// Abandoned attempts are forgotten by their age, although no request comes after them and nothing waits.
func TestAnAbandonedAttemptLeavesTheStatsByItsAge(t *testing.T) {
	probedQueue(t, "k", Probe{}, func(q *Queue, _ *atomic.Int32) {
		permit, _ := q.AcquireNow(q.elapsed())
		_, s := q.Guard.Abandon(permit, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Abandoned, Closed: true})
		q.HandleSignal(s)
		if g := q.Stats().Guard; g.Abandoned != 1 || g.InFlight != 1 {
			t.Errorf("at once: %d abandoned, %d in flight", g.Abandoned, g.InFlight)
		}
		time.Sleep(time.Minute)
		if g := q.Stats().Guard; g.Abandoned != 0 || g.InFlight != 0 {
			t.Errorf("after a minute: %d abandoned, %d in flight", g.Abandoned, g.InFlight)
		}
	})
}

// A probe that is due when the queue is over is not sent, and holds no permit.
func TestAQueueThatIsOverHoldsNoProbe(t *testing.T) {
	probedQueue(t, "c", Probe{}, func(q *Queue, dials *atomic.Int32) {
		q.lose(t)
		time.Sleep(time.Second)
		q.Close()
		before := dials.Load()
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			q.Guard.Expire(q.elapsed())
			if q.probe(); q.Guard.State().InFlight != 0 {
				t.Fatalf("%+v", q.Guard.State())
			}
		}
		if n := dials.Load(); n != before || q.Guard.State().Probes < 2 {
			t.Errorf("%d dials after the end, %d probes were due", n-before, q.Guard.State().Probes)
		}
	})
}
