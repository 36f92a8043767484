package fleet

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/fleet/enginetest"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// The script follows the rules of ratelimit.Ledger. Time passes between the calls, so the ledger
// may lag behind by that time.
func TestTheScriptIsTheLedger(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	r := rand.New(rand.NewPCG(1, 2))
	for _, gap := range []time.Duration{ratelimit.Rate{Count: 500, Per: time.Second}.Gap(), ratelimit.Rate{Count: 7, Per: time.Second}.Gap(), ratelimit.Rate{Count: 3, Per: time.Hour}.Gap()} {
		var ledger ratelimit.Ledger
		var slowest time.Duration
		key, began := uint64(gap), time.Now()
		for range 200 {
			a := ratelimit.LeaseRequest{
				Key: key, Gap: gap, Want: r.IntN(12), Charge: r.IntN(7) - 3,
				Share: gap * time.Duration(1+r.IntN(20)), Rate: 100 * r.Float64(), Owed: r.Float64(), Every: time.Duration(r.IntN(3)) * ratelimit.RateLimitRequestInterval,
			}
			before := time.Since(began)
			got, ok := p.requestLease(a)
			after := time.Since(began)
			slowest = max(slowest, after-before)
			want := ledger.Lease(after, a)
			near := slowest + 2*time.Millisecond
			if d := got.Ahead - want.Ahead; !ok || d < -near || d > near+gap*time.Duration(abs(got.Slots-want.Slots)) {
				t.Fatalf("gap %v, %+v: the engine says %+v, the ledger %+v", gap, a, got, want)
			}
			if d := got.Rest - want.Rest; d < -near || d > near {
				t.Fatalf("gap %v, %+v: the engine says %+v, the ledger %+v", gap, a, got, want)
			}
			if n := abs(got.Reserved - want.Reserved); n > 0 { // within the time that has passed
				if time.Duration(n)*gap > near+gap && a.Rate*near.Seconds() < float64(n-1) {
					t.Fatalf("gap %v, %+v: the engine says %+v, the ledger %+v", gap, a, got, want)
				}
				ledger.Lease(after, ratelimit.LeaseRequest{Gap: gap, Charge: got.Reserved - want.Reserved})
			}
			if got.Slots != want.Slots { // one slot more or less began within the horizon: continue with the engine's result
				if n := abs(got.Slots - want.Slots); time.Duration(n)*gap > near+gap {
					t.Fatalf("gap %v, %+v: the engine says %+v, the ledger %+v", gap, a, got, want)
				}
				ledger.Lease(after, ratelimit.LeaseRequest{Gap: gap, Charge: got.Slots - want.Slots})
			}
		}
	}
}

// A fraction of a slot of a process's share counts in the next request.
func TestTheScriptKnowsWhatIsOwed(t *testing.T) {
	p := joined(t, enginetest.Start(t))
	a := ratelimit.LeaseRequest{Key: 1, Gap: 10 * time.Millisecond, Charge: 30, Share: 105 * time.Millisecond, Rate: 100, Every: 100 * time.Millisecond}
	for owed, want := range map[float64]int{0: 0, 0.9: 1} {
		a.Owed = owed
		if g, ok := p.requestLease(a); !ok || g.Reserved != want || g.Rest != a.Every {
			t.Errorf("owed %v: %+v, want %d reserved", owed, g, want)
		}
	}
}

func abs(n int) int { return max(n, -n) }

// All processes together get no more slots in a period than the rate limit has.
func TestLeasedSlotsAreThoseOfAll(t *testing.T) {
	s := enginetest.Start(t)
	processes := []*process{joined(t, s), joined(t, s), joined(t, s)}
	gap := 2 * time.Millisecond
	began, slots := time.Now(), 0
	for time.Since(began) < 500*time.Millisecond {
		for _, p := range processes {
			g, _ := p.requestLease(ratelimit.LeaseRequest{Key: 1, Gap: gap, Want: 20})
			slots += g.Slots
		}
	}
	most := int((time.Since(began)+ratelimit.RateLimitHorizon)/gap) + 2
	if slots > most || slots < most*8/10 {
		t.Errorf("%d slots in %v, want at most %d and nearly as many", slots, time.Since(began), most)
	}
}

func TestASlotWithoutAnEngine(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	eventually(t, "told how many they are", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.processes == 1 })
	s.Kill()
	a := ratelimit.LeaseRequest{Key: 1, Gap: time.Millisecond, Want: 1}
	if _, ok := p.requestLease(a); ok {
		t.Error("a lease of nobody")
	}
	eventually(t, "lost", func() bool { return !p.Stats().Up })
	began := time.Now()
	for range 100 {
		if _, ok := p.requestLease(a); ok {
			t.Error("a lease of nobody")
		}
	}
	if d := time.Since(began); d > callTimeout {
		t.Errorf("100 questions took %v", d)
	}
	s.Restart()
	eventually(t, "back", func() bool { return p.Stats().Up })
	if _, ok := p.requestLease(a); ok && !p.link.allReconnected() {
		t.Error("a lease before the others can have found the engine again")
	}
	used := ratelimit.LeaseRequest{Key: 2, Gap: time.Minute, Want: 1, Charge: 1}
	p.requestLease(used)
	eventually(t, "a lease", func() bool { _, ok := p.requestLease(a); return ok })
	used.Charge = 0
	if g, ok := p.requestLease(used); !ok || g.Slots != 0 || g.Ahead == 0 {
		t.Errorf("%+v, %v: what the process used meanwhile does not count", g, ok)
	}
}

// An invalid time counts as none, a distant time as a near one, and every key expires.
func TestHostileRateLimit(t *testing.T) {
	s := enginetest.Start(t)
	p := joined(t, s)
	key := p.key("ratelimit", 1)
	for _, value := range []string{"", "x", "-1", "1e300", "inf", "99999999999999999999", "nan nan", "1 nan", "inf inf", "1e300 1e300", "-1 -1", "1 2 3"} {
		s.Do("SET", key, value)
		g, ok := p.requestLease(ratelimit.LeaseRequest{Key: 1, Gap: time.Millisecond, Want: 3})
		if !ok || g.Ahead > 3*ratelimit.RateLimitHorizon+ratelimit.RateLimitMaxRest+time.Millisecond || g.Rest > ratelimit.RateLimitMaxRest {
			t.Errorf("%q: %+v, %v", value, g, ok)
		}
		if left := s.Do("PTTL", key).(int64); left < 1 || left > 1400+ratelimit.RateLimitMaxRest.Milliseconds() {
			t.Errorf("%q: expires in %d ms", value, left)
		}
	}
	if got := s.Do("TYPE", key); got != "string" {
		t.Error(got)
	}
}

// slowly delays the engine's responses by exactly that time.
func slowly(t *testing.T, addr string, by time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	relay := func(dst, src net.Conn, by time.Duration) {
		defer dst.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			if err != nil {
				return
			}
			time.Sleep(by)
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { relay(far, near, 0) })
			all.Go(func() { relay(near, far, by) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	return l.Addr().String()
}

// Requests for many keys wait for each other instead of timing out: the engine responds, though
// slowly.
func TestManyQuestionsAtOnce(t *testing.T) {
	e := enginetest.StartTCP(t).Engine()
	e.Addrs = []string{slowly(t, e.Addrs[0], 20*time.Millisecond)}
	p := joinWith(t, Options{Engine: e})
	p.awaitListening()
	eventually(t, "joined", func() bool {
		_, ok := p.requestLease(ratelimit.LeaseRequest{Key: 1000, Gap: time.Millisecond, Want: 1})
		return ok
	})
	requests := make([]ratelimit.LeaseRequest, 200)
	for i := range requests {
		requests[i] = ratelimit.LeaseRequest{Key: uint64(i), Gap: 10 * time.Millisecond, Want: 1, Share: 10 * time.Millisecond}
	}
	c := &counting{Local: p}
	lost := p.Stats().Lost
	p.lease(t.Context(), requests, c)
	if st := p.Stats(); c.granted.Load() != 200 || c.failed.Load() != 0 || !st.Up || st.Lost != lost {
		t.Errorf("%d granted, %d failed; the engine answers: %v, lost %d times", c.granted.Load(), c.failed.Load(), st.Up, st.Lost-lost)
	}
}

// counting counts the results of requests.
type counting struct {
	Local
	granted, failed atomic.Int64
}

func (c *counting) ApplyRateLimitLease(uint64, ratelimit.LeaseGrant) { c.granted.Add(1) }
func (c *counting) FailRateLimitLease(uint64)                        { c.failed.Add(1) }
