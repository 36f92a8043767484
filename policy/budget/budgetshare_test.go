package budget

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// budgetFleet is processes that share a budget, in virtual time. Each process has so many requests
// per second; a share of them fails and is retried as long as the budget allows it.
type budgetFleet struct {
	ledger    Ledger
	processes []*Budget
	gone      func(now time.Duration) bool
	retries   int
	sent      int
}

func newBudgetFleet(n int, c Config) *budgetFleet {
	f := &budgetFleet{gone: func(time.Duration) bool { return false }}
	for range n {
		b := New(c)
		b.Share(func() {})
		f.processes = append(f.processes, b)
	}
	return f
}

func (f *budgetFleet) run(from, until time.Duration, perSecond float64, fails func(process int) bool) {
	const step = 10 * time.Millisecond
	r := rand.New(rand.NewPCG(5, 6))
	for now := from; now < until; now += step {
		for i, b := range f.processes {
			if r.Float64() < perSecond*step.Seconds() {
				b.Request(now)
				f.sent++
				if fails(i) && b.TryRetry(now) {
					f.retries++
				}
			}
			if a, due := b.MakeReport(now); due {
				if f.gone(now) {
					b.ReportFailed()
				} else {
					b.ApplyGrant(now, f.ledger.Settle(now, a), len(f.processes))
				}
			}
		}
	}
}

// Whoever fails, all processes together retry a fifth of all requests, and they share one reserve.
func TestAFleetHasOneRetryBudget(t *testing.T) {
	for name, tc := range map[string]struct {
		fails func(int) bool
		least float64 // fraction of what the budget allows
	}{
		"all fail":  {func(int) bool { return true }, 0.9},
		"some fail": {func(i int) bool { return i < 12 }, 0.9}, // 24 % of the requests fail, more than a fifth
		"one fails": {func(i int) bool { return i == 0 }, 0.0},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			f := newBudgetFleet(50, c)
			const long = 60
			f.run(0, long*time.Second, 20, tc.fails)
			most := float64(c.Burst) + c.Ratio*float64(f.sent) + c.MinPerSecond*long
			if n := float64(f.retries); n > most+50 || n < tc.least*most {
				t.Errorf("%v retries of %d requests, want at most %v", n, f.sent, most)
			}
			if name == "one fails" && f.retries < f.sent/50*8/10 {
				t.Errorf("%d retries of the one that fails with %d requests: the others' part is not lent", f.retries, f.sent/50)
			}
		})
	}
}

// A reserve of ten retries belongs to all processes, not to each.
func TestOneReserveForAll(t *testing.T) {
	f := newBudgetFleet(50, Default())
	f.run(0, 5*time.Second, 0.5, func(int) bool { return false })
	before := f.retries
	f.run(5*time.Second, 6*time.Second, 20, func(int) bool { return true })
	if n := f.retries - before; n > 10+50+250 { // the reserve, a round of responses, a fifth of these 1000 requests and of those before
		t.Errorf("%d retries in the first second of an outage; alone it would be %d", n, 50*10+250)
	}
}

// Without responses each process uses its own bucket: at once if they are known to be missing, and
// soon after if they only hang.
func TestABudgetWithoutAnEngine(t *testing.T) {
	b := New(Config{Ratio: 0.2, Burst: 3})
	b.Share(func() {})
	take := func(now time.Duration) (n int) {
		for b.TryRetry(now) {
			n++
		}
		return n
	}
	if n := take(0); n != 3 {
		t.Errorf("%d retries before anybody answered, want the own three", n)
	}
	b = New(Config{Ratio: 0.2, Burst: 3})
	b.Share(func() {})
	b.ApplyGrant(time.Second, 1, 50)
	if n := b.Tokens(time.Second); n != 1 {
		t.Errorf("%v tokens, the fleet has one", n)
	}
	if n := take(time.Second); n != 1 {
		t.Errorf("%d retries, the fleet has one", n)
	}
	if n := take(time.Second + 2*budgetGrantTimeout); n != 2 {
		t.Errorf("%d more once the response is late, want the rest of the own three", n)
	}
	b.ApplyGrant(2*time.Second, 0.5, 50)
	if n := take(2 * time.Second); n != 0 {
		t.Errorf("%d retries, the fleet has none", n)
	}
	b.ReportFailed()
	for range 10 {
		b.Request(2 * time.Second)
	}
	if n := take(2 * time.Second); n != 2 {
		t.Errorf("%d retries of ten requests, want two", n)
	}
}

// Reports count each request and each retry once, without the retries given back.
func TestWhatABudgetTells(t *testing.T) {
	b := New(Default())
	if _, due := b.MakeReport(time.Hour); due {
		t.Error("nobody shares it, and it tells")
	}
	b.Share(func() {})
	now := time.Hour
	b.ApplyGrant(now, 100, 1)
	for range 7 {
		b.Request(now)
	}
	b.TryRetry(now)
	b.TryRetry(now)
	b.GiveBack()
	if a, due := b.MakeReport(now); !due || a.Requests != 7 || a.Spent != 1 || a.Config != Default() {
		t.Errorf("%+v, %v", a, due)
	}
	if a, due := b.MakeReport(now + time.Minute); due && (a.Requests != 0 || a.Spent != 0) {
		t.Errorf("told twice: %+v", a)
	}
}

// Whatever the engine answers, a process never takes more at once than a budget can hold.
func TestHostileBudgetLevels(t *testing.T) {
	b := New(Default())
	b.Share(func() {})
	for _, level := range []float64{math.Inf(1), math.NaN(), 1e300, -1e300, math.Inf(-1)} {
		b.ApplyGrant(time.Second, level, 0)
		if n := b.allowed.Load(); n < 0 || n > maxBurst {
			t.Errorf("%v: %d allowed", level, n)
		}
	}
}
