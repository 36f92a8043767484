package budget

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// drain takes all tokens and returns how many there were.
func drain(b *Budget, now time.Duration) int {
	n := 0
	for b.TryRetry(now) {
		n++
	}
	return n
}

func requests(b *Budget, n int, now time.Duration) {
	for range n {
		b.Request(now)
	}
}

func TestBudgetBeginsFull(t *testing.T) {
	for _, origin := range []time.Duration{0, time.Nanosecond, 400 * 24 * time.Hour} {
		b := New(Default())
		if got := b.Tokens(origin); got != 10 {
			t.Errorf("at %v: %v tokens", origin, got)
		}
		if got := drain(b, origin); got != 10 {
			t.Errorf("at %v: %d retries", origin, got)
		}
		if got := b.Tokens(origin); got != 0 {
			t.Errorf("at %v: %v tokens after all were taken", origin, got)
		}
	}
}

func TestBudgetRefills(t *testing.T) {
	b := New(Default())
	drain(b, 0)
	for _, step := range []struct {
		at   time.Duration
		want int
		why  string
	}{
		{999 * time.Millisecond, 0, "not yet a whole token"},
		{1000 * time.Millisecond, 1, "one a second"},
		{1500 * time.Millisecond, 0, "half a token stays"},
		{2000 * time.Millisecond, 1, "and is added to"},
		{7 * time.Second, 5, "after a pause"},
		{17 * time.Second, 10, "up to the burst"},
		{10 * time.Hour, 10, "never more than the burst"},
	} {
		if got := drain(b, step.at); got != step.want {
			t.Errorf("at %v: %d retries, want %d (%s)", step.at, got, step.want, step.why)
		}
	}
}

func TestRequestsEarnRetries(t *testing.T) {
	b := New(Config{Ratio: 0.2})
	for i := range 50 {
		if b.TryRetry(0) {
			t.Fatalf("a retry after %d requests since the last", i%5)
		}
		requests(b, 5, 0)
		if !b.TryRetry(0) {
			t.Fatalf("no retry after 5 requests (round %d)", i)
		}
	}
}

func TestUnusedEarningsAreLostAfterTenSeconds(t *testing.T) {
	for _, tc := range []struct {
		at   time.Duration
		want float64
	}{
		{0, 20}, {9*time.Second + 999*time.Millisecond, 20}, {10 * time.Second, 0}, {17 * time.Second, 0}, {time.Hour, 0},
	} {
		b := New(Config{Ratio: 0.2})
		requests(b, 100, 0)
		if got := b.Tokens(tc.at); got != tc.want {
			t.Errorf("at %v: %v tokens, want %v", tc.at, got, tc.want)
		}
	}
}

// Savings of a healthy day must not pay for a retry storm: the window limits them.
func TestSavingsAreBoundedByTheWindow(t *testing.T) {
	b := New(Default())
	now := time.Duration(0)
	for range 600 {
		requests(b, 100, now)
		now += time.Second
	}
	now -= time.Second
	if got := drain(b, now); got != 10+0.2*100*10 {
		t.Errorf("%d retries at once after ten minutes of 100 requests a second", got)
	}
}

func TestLongRunIsTheRatio(t *testing.T) {
	b := New(Default())
	const seconds, rate = 300, 1000
	retries := 0
	for i := range seconds * rate {
		now := time.Duration(i) * time.Second / rate
		b.Request(now)
		if b.TryRetry(now) {
			retries++
		}
	}
	// The burst once, a fifth of the requests, and one per second.
	want := 10 + 0.2*seconds*rate + seconds
	if math.Abs(float64(retries)-want) > 2 {
		t.Errorf("%d retries for %d requests, want %v", retries, seconds*rate, want)
	}
}

func TestZeroBudgetAllowsNothing(t *testing.T) {
	b := New(Config{})
	requests(b, 1000, 0)
	if b.TryRetry(time.Hour) || b.Tokens(time.Hour) != 0 {
		t.Error("a retry from nothing")
	}
}

func TestBudgetHoldsOddNumbersInRange(t *testing.T) {
	for _, c := range []Config{
		{Ratio: -1, MinPerSecond: -1, Burst: -1},
		{Ratio: math.NaN(), MinPerSecond: math.NaN()},
	} {
		if b := New(c); b.TryRetry(0) || b.Tokens(time.Hour) != 0 {
			t.Errorf("%+v allows a retry", c)
		}
	}
	b := New(Config{Ratio: math.Inf(1), MinPerSecond: math.Inf(1), Burst: math.MaxInt})
	if got := b.Tokens(0); got != maxBurst {
		t.Errorf("%v tokens from an endless burst", got)
	}
	b.Request(0)
	if got := b.Tokens(0); got != maxBurst+maxRatio {
		t.Errorf("%v tokens after a request", got)
	}
	if b = New(Default()); drain(b, -time.Hour) != 10 {
		t.Error("a time before the origin")
	}
	if b.TryRetry(0) {
		t.Error("time before the origin earned a retry")
	}
	b.Request(-time.Hour)
	if got := b.Tokens(time.Minute); got != 10 {
		t.Errorf("%v tokens a minute after a request before the origin", got)
	}
}

func TestBudgetConfigValidate(t *testing.T) {
	for _, c := range []Config{{}, Default(), {Ratio: 10, MinPerSecond: 10_000, Burst: 1_000_000}, {Ratio: 0.0001}} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, c := range []Config{{Ratio: -0.1}, {Ratio: 10.1}, {Ratio: math.NaN()}, {Ratio: 0.00001}, {MinPerSecond: -1},
		{MinPerSecond: math.Inf(1)}, {Burst: -1}, {Burst: 1_000_001}} {
		if c.Validate() == nil {
			t.Errorf("%+v is taken", c)
		}
	}
}

// ledger is a budget as documented, with every event recorded.
type ledger struct {
	config   Config
	tokens   float64
	last     time.Duration
	requests []int64 // seconds
}

func (l *ledger) full(now time.Duration) float64 {
	recent := 0
	for _, second := range l.requests {
		if second > int64(now/time.Second)-windowSeconds {
			recent++
		}
	}
	return float64(l.config.Burst) + l.config.Ratio*float64(recent)
}

func (l *ledger) settle(now time.Duration) {
	l.tokens += l.config.MinPerSecond * (now - l.last).Seconds()
	l.last = now
	l.tokens = min(l.tokens, l.full(now))
}

func (l *ledger) request(now time.Duration) {
	l.requests = append(l.requests, int64(now/time.Second))
	l.tokens += l.config.Ratio
	l.settle(now)
}

func (l *ledger) retry(now time.Duration) bool {
	l.settle(now)
	if l.tokens < 1-1e-6 {
		return false
	}
	l.tokens--
	return true
}

// The bucket drops excess tokens only at a retry. It must agree with one that drops them at once;
// this is why one word of state is enough.
func TestBudgetAgreesWithItsDescription(t *testing.T) {
	r := seeded(21)
	for round := range 60 {
		c := Config{Ratio: pick(r, 0, 0.1, 0.2, 1, 2.5), MinPerSecond: pick(r, 0, 0.5, 1, 7), Burst: pick(r, 0, 1, 10, 50)}
		b, l := New(c), &ledger{config: c, tokens: float64(c.Burst)}
		now := time.Duration(0)
		for i := range 500 {
			now += pick(r, 0, time.Millisecond, 250*time.Millisecond, time.Duration(r.IntN(10)/9)*time.Duration(r.IntN(30))*time.Second)
			if r.IntN(2) == 0 {
				b.Request(now)
				l.request(now)
			} else if got, want := b.TryRetry(now), l.retry(now); got != want {
				t.Fatalf("round %d, event %d at %v, %+v: TryRetry %v, the description says %v with %v tokens", round, i, now, c, got, want, l.tokens)
			}
			if math.Abs(b.Tokens(now)-max(l.tokens, 0)) > 1e-3 {
				l.settle(now)
				if math.Abs(b.Tokens(now)-l.tokens) > 1e-3 {
					t.Fatalf("round %d, event %d at %v, %+v: %v tokens, the description says %v", round, i, now, c, b.Tokens(now), l.tokens)
				}
			}
		}
	}
}

// Over any period, the retries are at most the burst, what its requests and those of the ten
// seconds before earn, and the minimum per second. This is checked for every period that ends at a
// retry.
func TestBudgetIsNeverOverspentOverAnyStretch(t *testing.T) {
	r := seeded(22)
	c := Config{Ratio: 0.2, MinPerSecond: 1, Burst: 10}
	b := New(c)
	var requestsAt, retriesAt []time.Duration
	now := time.Duration(0)
	for range 4000 {
		now += time.Duration(r.Int64N(int64(40 * time.Millisecond)))
		if r.IntN(500) == 0 {
			now += time.Duration(r.Int64N(int64(20 * time.Second)))
		}
		if r.IntN(3) == 0 {
			b.Request(now)
			requestsAt = append(requestsAt, now)
		}
		if b.TryRetry(now) {
			retriesAt = append(retriesAt, now)
		}
	}
	for i, from := range retriesAt {
		earning := 0
		next := 0
		for next < len(requestsAt) && requestsAt[next] < from-windowSeconds*time.Second {
			next++
		}
		for j := i; j < len(retriesAt); j++ {
			for next < len(requestsAt) && requestsAt[next] <= retriesAt[j] {
				next, earning = next+1, earning+1
			}
			limit := 10 + 0.2*float64(earning) + (retriesAt[j] - from).Seconds()
			if spent := float64(j - i + 1); spent > limit+1e-6 {
				t.Fatalf("%v retries from %v to %v, limit %v", spent, from, retriesAt[j], limit)
			}
		}
	}
	if len(retriesAt) < 200 {
		t.Errorf("only %d retries", len(retriesAt))
	}
}

func TestBudgetIsNotOverspentByManyAtOnce(t *testing.T) {
	b := New(Config{Ratio: 0.2, Burst: 200_000})
	requests(b, 1000, 0)
	var taken atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { taken.Add(int64(drain(b, 0))) })
	}
	wg.Wait()
	if taken.Load() != 200_200 {
		t.Errorf("%d retries, want 200200", taken.Load())
	}
}

// Requests and retries race while the seconds change; never may more tokens be taken than added.
func TestBudgetUnderARaceOfSeconds(t *testing.T) {
	c := Config{Ratio: 0.25, Burst: 5}
	b := New(c)
	var sent, taken, clock atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				now := time.Duration(clock.Add(int64(3 * time.Millisecond)))
				sent.Add(1)
				b.Request(now)
				if !b.TryRetry(now) {
					runtime.Gosched()
					continue
				}
				n := taken.Add(1)
				if limit := 5 + 0.25*float64(sent.Load()); float64(n) > limit {
					t.Errorf("%d retries, limit %v", n, limit)
					return
				}
			}
		})
	}
	wg.Wait()
	if all, _ := b.requests(time.Duration(clock.Load())); all != sent.Load() {
		t.Errorf("%d requests counted of %d", all, sent.Load())
	}
	if got := float64(taken.Load()); got < 0.24*float64(sent.Load()) {
		t.Errorf("only %v retries for %d requests", got, sent.Load())
	}
}

func TestBudgetDoesNotAllocate(t *testing.T) {
	b := New(Default())
	now := time.Duration(0)
	n := testing.AllocsPerRun(1000, func() {
		now += 100 * time.Millisecond
		b.Request(now)
		b.TryRetry(now)
		b.Tokens(now)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkBudgetRequest(b *testing.B) {
	budget := New(Default())
	b.ReportAllocs()
	var now time.Duration
	for b.Loop() {
		now += 10 * time.Microsecond
		budget.Request(now)
	}
}

func BenchmarkBudgetRequestParallel(b *testing.B) {
	budget := New(Default())
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var now time.Duration
		for pb.Next() {
			now += 10 * time.Microsecond
			budget.Request(now)
		}
	})
}

func BenchmarkBudgetTryRetry(b *testing.B) {
	budget := New(Default())
	b.ReportAllocs()
	var now time.Duration
	for b.Loop() {
		now += 10 * time.Microsecond
		budget.TryRetry(now)
	}
}

func TestATokenGivenBackIsThereAgain(t *testing.T) {
	b := New(Config{Burst: 3})
	for range 3 {
		if !b.TryRetry(0) {
			t.Fatal("the burst is not there")
		}
	}
	if b.TryRetry(0) {
		t.Fatal("a fourth token")
	}
	b.GiveBack()
	if !b.TryRetry(0) || b.TryRetry(0) {
		t.Error("one given back is not one more")
	}
}

func TestTokensGivenBackLateDoNotOverfill(t *testing.T) {
	b := New(Config{Burst: 3, MinPerSecond: 1})
	b.TryRetry(0)
	b.Tokens(time.Minute)
	b.GiveBack() // the bucket has filled up since
	if got := b.Tokens(time.Minute); got != 3 {
		t.Errorf("%v tokens, want the burst of 3", got)
	}
}
