package attempt

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// race calls test with the two attempts of a hedged request, in fake time. handle is called with the number of each
// connection, from 0, and the hedge is due after a second. change may change what the hedge is made of.
func race(t *testing.T, handle func(n int, c net.Conn), change func(r *request, h *Hedge), test func(r *request, first, hedge *Attempt, cause policy.Cause)) {
	t.Helper()
	var n atomic.Int32
	inMemory(t, func(c net.Conn) { handle(int(n.Add(1))-1, c) }, func(r *request) {
		first, hedge := r.env.New(), r.env.New()
		r.onHedge = func() {
			hedge.Begin(2, r.clock.Now(), nil, Options{Limits: usual})
			h := Hedge{Pool: r.pool, Until: r.clock.Now().Add(testTimeout), Head: r.head}
			if change != nil {
				change(r, &h)
			}
			first.StartHedge(hedge, h)
		}
		first.Begin(1, r.clock.Now(), nil, Options{Limits: usual, HedgeAfter: time.Second})
		cause := first.Make(false)
		test(r, first, hedge, cause)
		hedge.StopHedge()
		hedge.Drop()
		first.Abandon()
		first.EndHedge()
	})
}

// A first attempt that fails waits for its hedge, whose result counts then. Each had its result when it had it.
func TestAHedgeIsAwaitedAfterTheFirstFailed(t *testing.T) {
	const s = time.Second
	race(t, func(n int, c net.Conn) {
		_, _ = readHeaders(c)
		if n == 0 {
			acts(c, 2*s, ends{})
			return
		}
		acts(c, 4*s, ok200)
	}, nil, func(r *request, first, hedge *Attempt, cause policy.Cause) {
		began := r.clock.Now().Add(-2 * s)
		if cause != policy.CauseReset || first.Overtaken() || hedge.HedgeEnded() {
			t.Fatalf("%v, overtaken %v", cause, first.Overtaken())
		}
		first.AwaitHedge()
		now := r.clock.Now()
		if took := now.Sub(began); took != 5*s {
			t.Errorf("the hedge ended after %v", took)
		}
		if cause, wrote := hedge.HedgeResult(); cause != policy.CauseStatus || !wrote || !hedge.HedgeEnded() {
			t.Errorf("the hedge: %v, wrote %v", cause, wrote)
		}
		if first.UsesClient() != true || first.SendsBody() {
			t.Error("the client is nobody's")
		}
		if at := first.ResultAt(now).Sub(began); at != 2*s {
			t.Errorf("the first had its result after %v", at)
		}
		if at := hedge.ResultAt(now.Add(s)).Sub(began); at != 5*s {
			t.Errorf("the hedge had its result after %v", at)
		}
		first.EndHedge()
		hedge.Adopt(Options{Limits: usual}, false)
		if at := hedge.End(policy.CauseStatus, now.Add(s)).At.Sub(began); at != 5*s {
			t.Errorf("the hedge has ended after %v", at)
		}
		if first.UsesClient() || r.body(hedge) != "ok" {
			t.Error("the response of the hedge is another")
		}
	})
}

// A hedge that has ended is not awaited, and a client that leaves meanwhile ends the wait.
func TestTheWaitForAHedgeEnds(t *testing.T) {
	const s = time.Second
	race(t, func(n int, c net.Conn) {
		_, _ = readHeaders(c)
		if n == 0 {
			acts(c, 2*s, ends{})
		}
		stalls(c)
	}, nil, func(r *request, first, hedge *Attempt, _ policy.Cause) {
		time.AfterFunc(s, func() { _ = r.conn.Close() })
		began := time.Now()
		first.AwaitHedge()
		if took := time.Since(began); took != s || r.ClientStaysOn() {
			t.Errorf("after %v, the client stays: %v", took, r.ClientStaysOn())
		}
		if cause, _ := hedge.HedgeResult(); cause != policy.CauseAttemptTimeout || hedge.HedgeEnded() {
			t.Errorf("the hedge: %v, ended on its own: %v", cause, hedge.HedgeEnded())
		}
		first.AwaitHedge() // there is nothing to wait for
		if time.Since(began) != s || first.upload.running {
			t.Error("it is awaited again")
		}
	})
}

// How a hedge can fail, and what may have been processed then.
func TestHowAHedgeEnds(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		acts    []action
		change  func(r *request, h *Hedge)
		cause   policy.Cause
		wrote   bool
		flight  bool          // it has its connection still
		after   time.Duration // since it began
		faulted bool
	}{
		"a response": {[]action{s, ok200}, nil, policy.CauseStatus, true, true, s, false},
		"an end":     {[]action{s, ends{}}, nil, policy.CauseReset, true, false, s, false},
		"no HTTP":    {[]action{"SSH\r\n\r\n"}, nil, policy.CauseMalformed, true, false, 0, false},
		"an upgrade": {[]action{"HTTP/1.1 101 A\r\nConnection: upgrade\r\nUpgrade: b\r\n\r\n"}, nil, policy.CauseMalformed, true, false, 0, false},
		"hints":      {[]action{"HTTP/1.1 103 A\r\n\r\n", s, ok200}, nil, policy.CauseStatus, true, true, s, false},
		"silence":    {nil, func(r *request, h *Hedge) { h.Until = r.clock.Now().Add(3 * s) }, policy.CauseAttemptTimeout, true, true, 3 * s, false},
		"no time":    {nil, func(r *request, h *Hedge) { h.Until = r.clock.Now() }, policy.CauseDial, false, false, 0, false},
		"no connection": {nil, func(r *request, h *Hedge) {
			h.Pool = upstream.NewGroup(upstream.Target{Network: "tcp", Address: "192.0.2.9:80", Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no") }}, upstream.Options{})
			r.t.Cleanup(h.Pool.Close)
		}, policy.CauseDial, false, false, 0, false},
		"a fault": {nil, func(r *request, h *Hedge) { h.Head = func(wire.Form, string) wire.Head { panic("fault") } }, policy.CauseReset, false, false, 0, true},
	} {
		faults := 0
		race(t, func(n int, c net.Conn) {
			if _, err := readHeaders(c); err == nil && n == 1 {
				acts(c, tc.acts...)
			}
			stalls(c)
		}, func(r *request, h *Hedge) {
			r.env.Host.OnFault = func(any) { faults++ }
			if tc.change != nil {
				tc.change(r, h)
			}
		}, func(r *request, first, hedge *Attempt, _ policy.Cause) {
			if !first.Overtaken() || !hedge.HedgeEnded() {
				t.Fatalf("%s: overtaken %v", name, first.Overtaken())
			}
			cause, wrote := hedge.HedgeResult()
			if cause != tc.cause || wrote != tc.wrote || hedge.InFlight() != tc.flight || (faults == 1) != tc.faulted {
				t.Errorf("%s: %v, wrote %v, in flight %v, %d faults", name, cause, wrote, hedge.InFlight(), faults)
			}
			if took := r.clock.Now().Sub(hedge.Began()); took != tc.after {
				t.Errorf("%s: after %v", name, took)
			}
			if name == "no connection" && (hedge.DialError() == nil || hedge.Addr() != "192.0.2.9:80") {
				t.Errorf("%v at %q", hedge.DialError(), hedge.Addr())
			}
		})
	}
}

// A hedge that is stopped before it has a connection sends nothing.
func TestAHedgeThatIsStoppedDuringItsDialSendsNothing(t *testing.T) {
	for name, late := range map[string]bool{"it hangs": false, "it comes too late": true} {
		var got atomic.Int32
		race(t, func(n int, c net.Conn) {
			if _, err := readHeaders(c); err == nil && n == 0 {
				acts(c, 2*time.Second, ok200)
			}
			stalls(c)
		}, func(r *request, h *Hedge) {
			h.Pool = upstream.NewGroup(upstream.Target{Network: "tcp", Address: "192.0.2.9:80", Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				if !late {
					return nil, ctx.Err()
				}
				ours, theirs := net.Pipe()
				go func() {
					if n, _ := theirs.Read(make([]byte, 1)); n > 0 {
						got.Add(1)
					}
				}()
				r.t.Cleanup(func() { theirs.Close() })
				return ours, nil
			}}, upstream.Options{})
			r.t.Cleanup(h.Pool.Close)
		}, func(r *request, first, hedge *Attempt, cause policy.Cause) {
			if cause != policy.CauseStatus || first.Overtaken() {
				t.Fatalf("%v", cause)
			}
			hedge.StopHedge()
			hedge.StopHedge()
			if cause, wrote := hedge.HedgeResult(); cause != policy.CauseDial || wrote || hedge.InFlight() || hedge.HedgeEnded() || got.Load() != 0 {
				t.Errorf("%s: %v, wrote %v, in flight %v", name, cause, wrote, hedge.InFlight())
			}
		})
	}
}

// A hedge whose pooled connection was closed by the upstream is sent on a new one.
func TestAHedgeOnAStaleConnectionIsSentAgain(t *testing.T) {
	var n atomic.Int32
	r := newRequest(t, serve(t, func(c net.Conn) {
		switch n.Add(1) {
		case 1: // idle in the pool
			_, _ = readHeaders(c)
			_, _ = io.WriteString(c, ok200)
			stalls(c)
		case 2:
			stalls(c)
		default:
			saysEach(ok200)(c)
		}
	}))
	a := r.wants(Options{Limits: usual})
	_ = r.body(a)
	stale := a.Take()
	r.onHedge = nil
	first, hedge := r.env.New(), r.env.New()
	t.Cleanup(first.Abandon)
	r.onHedge = func() {
		for n.Load() < 2 { // that of the first attempt
			time.Sleep(time.Millisecond)
		}
		stale.Release(0)
		hedge.Begin(2, r.clock.Now(), nil, Options{})
		t.Cleanup(hedge.Drop)
		first.StartHedge(hedge, Hedge{Pool: r.pool, Until: r.clock.Now().Add(testTimeout), Head: func(form wire.Form, host string) wire.Head {
			if hedge.Reused() {
				_ = hedge.conn.up.Raw().(interface{ CloseWrite() error }).CloseWrite() // nothing can be written to it
			}
			return r.head(form, host)
		}})
	}
	first.Begin(1, r.clock.Now(), nil, Options{HedgeAfter: 10 * time.Millisecond})
	first.Make(false)
	if cause, wrote := hedge.HedgeResult(); cause != policy.CauseStatus || !wrote || hedge.Reused() || n.Load() != 3 {
		t.Errorf("%v, wrote %v, on a connection used before: %v, %d connections", cause, wrote, hedge.Reused(), n.Load())
	}
	first.EndHedge()
}

// An attempt that finds no file descriptor waits for one, longer each time, and begins when it has one.
func TestAnAttemptWaitsForADescriptor(t *testing.T) {
	for name, tc := range map[string]struct {
		fails int
		gives int // up after so many waits
		cause policy.Cause
		waits []time.Duration
	}{
		"one is free":       {0, 100, policy.CauseStatus, nil},
		"after three waits": {3, 100, policy.CauseStatus, []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}},
		"it gives up":       {100, 2, policy.CauseDial, []time.Duration{5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond}},
	} {
		inMemory(t, saysEach(ok200), func(r *request) {
			p := &poor{request: r, fails: tc.fails, gives: tc.gives}
			r.env.Owner = p
			began := r.clock.Now()
			a, cause := r.send(Options{Limits: usual})
			var sum time.Duration
			for i, w := range p.waits {
				if sum += w; i >= len(tc.waits) || w != tc.waits[i] {
					t.Errorf("%s: waits of %v", name, p.waits)
					break
				}
			}
			if cause != tc.cause || len(p.waits) != len(tc.waits) {
				t.Errorf("%s: %v after waits of %v", name, cause, p.waits)
			}
			if at := a.Began().Sub(began); cause == policy.CauseStatus && at != sum {
				t.Errorf("%s: it began after %v, want %v", name, at, sum)
			}
			if len(p.since) > 0 && p.since[len(p.since)-1] != began {
				t.Errorf("%s: none since %v", name, p.since)
			}
			a.Abandon()
		})
	}
}

// poor is the owner of an attempt in a process without a free descriptor.
type poor struct {
	*request
	fails, gives int
	waits        []time.Duration
	since        []clock.Instant
}

func (p *poor) Dial(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error) {
	if p.fails > 0 {
		p.fails--
		return nil, &upstream.DialError{Kind: upstream.KindNoDescriptors, Addr: "a", Err: errors.New("none")}
	}
	return p.request.Dial(ctx, o)
}

func (p *poor) AwaitDescriptor(_ *Attempt, wait time.Duration, since clock.Instant) bool {
	p.waits, p.since = append(p.waits, wait), append(p.since, since)
	time.Sleep(wait)
	return len(p.waits) <= p.gives
}

// A large body is read into a large buffer, unless memory is short or the headers are needed still.
func TestTheBufferOfABody(t *testing.T) {
	big := strings.Repeat("a", 3*buffer.Large)
	for name, tc := range map[string]struct {
		length  string
		short   bool
		headers bool // are needed still
		most    int
		least   int
	}{
		"a large one":        {"Content-Length: 196608\r\n", false, false, buffer.Large, buffer.Large},
		"until the end":      {"", false, false, buffer.Large, buffer.Large},
		"memory is short":    {"Content-Length: 196608\r\n", true, false, buffer.Medium, buffer.Medium},
		"with its headers":   {"Content-Length: 196608\r\n", false, true, buffer.Medium, buffer.Medium},
		"a little of a rest": {"Content-Length: 30000\r\n", false, false, buffer.Wide, buffer.Medium},
	} {
		inMemory(t, func(c net.Conn) {
			_, _ = readHeaders(c)
			acts(c, "HTTP/1.1 200 OK\r\n"+tc.length+"\r\n", big, ends{})
		}, func(r *request) {
			r.env.Host.UnderPressure = func() bool { return tc.short }
			a := r.wants(Options{Limits: usual})
			if !tc.headers {
				a.Body().HeadersSent()
			}
			most := 0
			for err := error(nil); err == nil; {
				_, err = a.Body().Next(testTimeout)
				most = max(most, a.ResponseMemory())
			}
			if most > tc.most || most < tc.least {
				t.Errorf("%s: a buffer of %d bytes", name, most)
			}
			a.Abandon()
		})
	}
}

// What is read ahead is held until the response is relayed, and by how much the memory grew is told.
func TestReadingAheadTellsWhatItTakes(t *testing.T) {
	inMemory(t, func(c net.Conn) {
		_, _ = readHeaders(c)
		acts(c, "HTTP/1.1 200 OK\r\nContent-Length: 30000\r\n\r\n", strings.Repeat("a", 10_000), time.Second, strings.Repeat("b", 10_000), 10*time.Second)
	}, func(r *request) {
		a := r.wants(Options{Limits: usual})
		if !a.Body().HasRoom() || !a.Body().Exceeds(29_999) || a.Body().Exceeds(30_000) {
			t.Errorf("room %v, exceeds %v", a.Body().HasRoom(), a.Body().Exceeds(30_000))
		}
		grew := 0
		for len(a.Body().Held()) < 20_000 {
			n, err := a.Body().ReadAheadWithin(2 * time.Second)
			if grew += n; err != nil {
				t.Fatal(err)
			}
		}
		before := a.ResponseMemory()
		if held := a.Body().Held(); grew < 20_000 || before != a.conn.size()+grew || string(held[9_999:10_001]) != "ab" {
			t.Errorf("it grew by %d to %d, with %d held", grew, before, len(held))
		}
		began := time.Now()
		if n, err := a.Body().ReadAheadWithin(2 * time.Second); n != 0 || err == nil || time.Since(began) != 2*time.Second {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
		if n, err := a.Body().ReadAhead(r.clock.Now().Add(3 * time.Second)); n != 0 || err == nil || time.Since(began) != 5*time.Second {
			t.Errorf("%d, %v after %v", n, err, time.Since(began))
		}
		a.Abandon()
		if a.ResponseMemory() != 0 {
			t.Errorf("%d bytes after the end", a.ResponseMemory())
		}
	})
}

// The write deadline is between once and twice the idle time away, and is moved no more often than that needs.
func TestTheWriteDeadlineStaysAhead(t *testing.T) {
	const s = time.Second
	inMemory(t, saysEach(ok200), func(r *request) {
		a := r.wants(Options{Limits: usual})
		now := r.clock.Now()
		for _, tc := range []struct{ left, idle, want time.Duration }{
			{-1, s, 2 * s}, {2 * s, s, 2 * s}, {s, s, s}, {s - 1, s, 2 * s}, {2*s + 1, s, 2 * s}, {5 * s, 0, -1}, {-1, 0, -1}, {s, 3 * s, 6 * s},
		} {
			by := clock.Instant(0) // none
			if tc.left >= 0 {
				by = now.Add(tc.left)
			}
			a.conn.up.SetWriteBy(time.Duration(by))
			a.conn.extendWrite(now, tc.idle)
			if got := a.conn.writeBy(); tc.want < 0 && !got.IsZero() || tc.want >= 0 && got.Sub(now) != tc.want {
				t.Errorf("%v left of an idle time of %v, and then %v", tc.left, tc.idle, got.Sub(now))
			}
		}
		a.Abandon()
	})
}
