package admission

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
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

// talker is an upstream in fake time whose circuit breaker opens by one failure, with its log of requests.
type talker struct {
	*Queue
	house
	requests atomic.Int32
	address  atomic.Pointer[netip.Addr]
}

// talking calls test with the queue of an upstream that answers each request with answer, after a wait.
func talking(t *testing.T, p Probe, answer string, wait time.Duration, test func(u *talker)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		u := &talker{house: house{clock: clock.New()}}
		done := make(chan struct{})
		defer close(done)
		at := netip.MustParseAddr("10.0.0.1")
		u.address.Store(&at)
		target := upstream.Target{Network: "tcp", Address: "upstream.test:80", Host: "upstream.test",
			Resolve: func(context.Context, string) ([]netip.Addr, error) { return []netip.Addr{*u.address.Load()}, nil },
			Dial: func(context.Context, string, string) (net.Conn, error) {
				if answer == "refuse" {
					return nil, syscall.ECONNREFUSED
				}
				near, far := net.Pipe()
				go func() {
					defer far.Close()
					buf := make([]byte, 1000)
					if n, err := far.Read(buf); err != nil || !strings.Contains(string(buf[:n]), "Host: upstream.test\r\n") {
						return
					}
					u.requests.Add(1)
					select {
					case <-time.After(wait):
					case <-done:
					}
					_, _ = far.Write([]byte(answer))
				}()
				return near, nil
			}}
		pool := upstream.NewGroup(target, upstream.Options{Start: u.clock.Epoch()})
		defer pool.Close()
		u.Queue = New(Options{Guard: breaker.Options{After: 1, Backoff: backoff.Fixed{Base: 100 * time.Millisecond}}, Pool: pool, Probe: p, Max: 10, Clock: u.clock, Draining: &u.house.draining, Failures: NewDialFailures(zap.NewNop(), "a")})
		defer u.Close()
		u.terms = Terms{Queue: u.Queue, Queues: true, QueueTimeout: 10 * time.Second}
		time.Sleep(time.Second)
		permit, _ := u.AcquireNow(u.elapsed())
		u.HandleSignal(u.Guard.Release(permit, u.elapsed(), breaker.AttemptEnd{Kind: breaker.Responded, Status: 503}))
		if u.Guard.State().Breaker != breaker.Open {
			t.Fatal("the breaker is not open")
		}
		test(u)
	})
}

// A probe by GET closes the breaker if its response is healthy, whatever follows it. Each is counted by its result.
func TestWhatAProbeByGETShows(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		wait   time.Duration
		result breaker.ProbeResult
		state  breaker.State
	}{
		"healthy":       {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 0, breaker.ProbeBack, breaker.SlowStart},
		"not found":     {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 0, breaker.ProbeBack, breaker.SlowStart},
		"with more":     {"HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 100_000), 0, breaker.ProbeBack, breaker.SlowStart},
		"after a while": {"HTTP/1.1 200 OK\r\n\r\n", time.Second, breaker.ProbeBack, breaker.SlowStart},
		"after hints":   {"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", 0, breaker.ProbeBack, breaker.SlowStart},
		"failing":       {"HTTP/1.1 503 Service Unavailable\r\n\r\n", 0, breaker.ProbeFailing, breaker.Open},
		"not HTTP":      {"SSH-2.0-OpenSSH_9.9\r\n\r\n", 0, breaker.ProbeFailing, breaker.Open},
		"nothing":       {"", 0, breaker.ProbeUnanswered, breaker.Open},
		"refused":       {"refuse", 0, breaker.ProbeUnreachable, breaker.Open},
	} {
		talking(t, Probe{Path: "/healthy"}, tc.answer, tc.wait, func(u *talker) {
			for n := 0; u.Stats().Probed == [breaker.NumProbeResults]uint64{}; n++ {
				if n > 10_000 {
					t.Fatalf("%s: not probed", name)
				}
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			s := u.Stats()
			if !s.HasProbe || s.Probed[tc.result] != 1 || s.Guard.Breaker != tc.state || s.Guard.InFlight != 0 {
				t.Errorf("%s: %v, the breaker is %v, %d in flight", name, s.Probed, s.Guard.Breaker, s.Guard.InFlight)
			}
			if n := u.requests.Load(); n != 1 && tc.answer != "refuse" {
				t.Errorf("%s: %d requests", name, n)
			}
		})
	}
}

// A client that leaves while its request is the probe leaves the response to it, which is evidence still, if the
// request was sent whole.
func TestTheLateResponseToAnAbandonedProbe(t *testing.T) {
	const get = "GET / HTTP/1.1\r\nHost: upstream.test\r\n\r\n"
	for name, tc := range map[string]struct {
		answer  string
		p       attempt.Progress
		kind    breaker.EndKind
		awaited bool
		back    bool
	}{
		"it comes":               {"HTTP/1.1 200 OK\r\n\r\n", attempt.Progress{SentSome: true, Sent: true}, breaker.Abandoned, true, true},
		"it comes, and is bad":   {"HTTP/1.1 503 No\r\n\r\n", attempt.Progress{SentSome: true, Sent: true}, breaker.Abandoned, true, false},
		"after a timeout":        {"HTTP/1.1 200 OK\r\n\r\n", attempt.Progress{SentSome: true, Sent: true}, breaker.TimedOut, true, true},
		"it is no HTTP":          {"what\r\n\r\n", attempt.Progress{SentSome: true, Sent: true}, breaker.Abandoned, true, false},
		"the connection ends":    {"", attempt.Progress{SentSome: true, Sent: true}, breaker.Abandoned, true, false},
		"not sent whole":         {"HTTP/1.1 200 OK\r\n\r\n", attempt.Progress{SentSome: true}, breaker.Abandoned, false, false},
		"not sent":               {"HTTP/1.1 200 OK\r\n\r\n", attempt.Progress{}, breaker.Abandoned, false, false},
		"its headers came":       {"HTTP/1.1 200 OK\r\n\r\n", attempt.Progress{SentSome: true, Sent: true, Begun: true}, breaker.Abandoned, false, false},
		"its headers came, late": {"HTTP/1.1 200 OK\r\n\r\n", attempt.Progress{SentSome: true, Sent: true, Begun: true}, breaker.TimedOut, false, false},
	} {
		talking(t, Probe{}, tc.answer, 300*time.Millisecond, func(u *talker) {
			r := (&town{house: house{clock: u.clock, terms: u.terms}}).request()
			if _, why := r.admit(); why != nil || !r.ticket.IsProbe() {
				t.Fatalf("%s: %+v, a probe: %v", name, why, r.ticket.IsProbe())
			}
			up, err := u.Dial(context.Background(), upstream.GetOptions{Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			if tc.p.Sent {
				tc.p.SentAt = u.clock.Now()
				if _, err := up.Write([]byte(get)); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(100 * time.Millisecond)
			late, awaited := r.ticket.Abandon(u.clock.Now(), tc.kind, tc.p)
			if awaited != tc.awaited || r.ticket.IsOpen() {
				t.Errorf("%s: awaited %v, open %v", name, awaited, r.ticket.IsOpen())
			}
			if awaited {
				late.AwaitResponse(up)
				time.Sleep(250 * time.Millisecond)
			} else {
				up.Abort()
			}
			synctest.Wait()
			if s := u.Guard.State(); (s.Breaker == breaker.SlowStart) != tc.back {
				t.Errorf("%s: the breaker is %v", name, s.Breaker)
			}
			if awaited {
				if _, err := up.Write([]byte("x")); err == nil {
					t.Errorf("%s: the connection is left open", name)
				}
			}
		})
	}
}

// Nobody reads the late response of a probe after the end of the queue.
func TestALateResponseIsNotAwaitedAfterTheEnd(t *testing.T) {
	talking(t, Probe{}, "HTTP/1.1 200 OK\r\n\r\n", time.Hour, func(u *talker) {
		r := (&town{house: house{clock: u.clock, terms: u.terms}}).request()
		if _, why := r.admit(); why != nil {
			t.Fatalf("%+v", why)
		}
		up, _ := u.Dial(context.Background(), upstream.GetOptions{Fresh: true})
		late, awaited := r.ticket.Abandon(u.clock.Now(), breaker.Abandoned, attempt.Progress{SentSome: true, Sent: true, SentAt: u.clock.Now()})
		u.Close()
		late.AwaitResponse(up)
		time.Sleep(time.Minute)
		if n := u.Stats().Guard.InFlight; !awaited || n != 0 {
			t.Errorf("awaited %v, %d in flight a minute later", awaited, n)
		}
		if _, err := up.Write([]byte("x")); err == nil {
			t.Error("its connection is left open")
		}
	})
	talking(t, Probe{}, "", time.Hour, func(u *talker) { // and one that is awaited is no longer
		r := (&town{house: house{clock: u.clock, terms: u.terms}}).request()
		if _, why := r.admit(); why != nil {
			t.Fatalf("%+v", why)
		}
		up, _ := u.Dial(context.Background(), upstream.GetOptions{Fresh: true})
		late, _ := r.ticket.Abandon(u.clock.Now(), breaker.Abandoned, attempt.Progress{SentSome: true, Sent: true, SentAt: u.clock.Now()})
		late.AwaitResponse(up)
		before := u.clock.Now()
		if u.Close(); u.clock.Now().Sub(before) > time.Second {
			t.Errorf("the end takes %v", u.clock.Now().Sub(before))
		}
	})
}

// While a probe hangs at an address that the upstream left, another one is sent to where it is now.
func TestAProbeIsReplacedWhenItsUpstreamMoved(t *testing.T) {
	for name, tc := range map[string]struct {
		moves, reused bool
		admitted      bool
	}{
		"it moved":                    {true, false, true},
		"it did not":                  {false, false, false},
		"on a connection used before": {true, true, false},
	} {
		talking(t, Probe{}, "", time.Hour, func(u *talker) {
			first := (&town{house: house{clock: u.clock, terms: u.terms}}).request()
			if _, why := first.admit(); why != nil {
				t.Fatalf("%+v", why)
			}
			up, err := u.Dial(context.Background(), upstream.GetOptions{Fresh: true})
			if err != nil {
				t.Fatal(err)
			}
			first.ticket.Connected(up.Addr, tc.reused)
			if tc.moves {
				to := netip.MustParseAddr("10.0.0.2")
				u.address.Store(&to)
			}
			second := (&town{house: house{clock: u.clock, terms: u.terms}}).request()
			second.meanwhile(1500*time.Millisecond, ClientLeft)
			waited, why := second.admit()
			if (why == nil) != tc.admitted || tc.admitted && !second.ticket.IsProbe() {
				t.Errorf("%s: %+v after %v", name, why, waited)
			}
			if why == nil {
				second.ticket.Return(u.clock.Now())
			}
			up.Abort()
			first.ticket.Return(u.clock.Now())
		})
	}
}

// A late response to a probe that would be awaited when the queue is over is not: the next probe need not wait for it,
// and its connection ends.
func TestAQueueThatIsOverAwaitsNoLateResponse(t *testing.T) {
	probedQueue(t, "cccccccck", Probe{Path: "/"}, func(q *Queue, _ *atomic.Int32) {
		q.lose(t)
		time.Sleep(time.Second)
		q.Close()
		probe := func() (p breaker.Permit) {
			for began := time.Now(); !p.Probe() && time.Since(began) < LateResponseTimeout/2; time.Sleep(10 * time.Millisecond) {
				q.Guard.Expire(q.elapsed())
				p, _ = q.Guard.Probe(q.elapsed())
			}
			return p
		}
		first := probe()
		up, err := q.pool.Get(context.Background(), upstream.GetOptions{Fresh: true})
		if err != nil || !first.Probe() {
			t.Fatal(err, first)
		}
		late, _ := q.Guard.Abandon(first, q.elapsed(), breaker.AttemptEnd{Kind: breaker.Abandoned})
		q.AwaitLateResponse(up, late)
		if n := q.pool.Stats().Active; n != 0 {
			t.Errorf("%d connections", n)
		}
		if !probe().Probe() {
			t.Error("no probe followed")
		}
	})
}
