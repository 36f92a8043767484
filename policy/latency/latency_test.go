package latency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// The estimate is never below the quantile of the counted latencies and at most a bucket above it,
// whatever their spread.
func TestLatenciesEstimateTheQuantile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	spreads := map[string]func() float64{ // in seconds
		"constant":    func() float64 { return 0.0123 },
		"uniform":     func() float64 { return 0.001 + 0.1*rnd.Float64() },
		"exponential": func() float64 { return 0.020 * rnd.ExpFloat64() },
		"lognormal":   func() float64 { return 0.005 * math.Exp(rnd.NormFloat64()) },
		"two peaks": func() float64 {
			if rnd.IntN(100) < 10 {
				return 0.2 + 0.1*rnd.Float64()
			}
			return 0.001 + 0.001*rnd.Float64()
		},
	}
	for name, draw := range spreads {
		for _, percent := range []int{50, 90, 95, 99} {
			t.Run(fmt.Sprint(name, " p", percent), func(t *testing.T) {
				l := NewLatencies(percent)
				all := make([]time.Duration, 3000)
				for i := range all {
					all[i] = time.Duration(draw() * float64(time.Second))
					l.ObserveResponse(all[i])
				}
				slices.Sort(all)
				got, want := l.Estimate(time.Second), all[len(all)*percent/100-1]
				if got < want || float64(got) > 1.13*float64(want)+float64(time.Microsecond) {
					t.Errorf("estimate %v, want %v to 1.13 of it", got, want)
				}
			})
		}
	}
}

func TestLatenciesNeedSamples(t *testing.T) {
	for percent, need := range map[int]int{50: 20, 90: 100, 95: 200, 99: 1000} {
		l := NewLatencies(percent)
		for range need - 1 {
			l.ObserveResponse(time.Second)
		}
		if d := l.Estimate(time.Second); d != 0 {
			t.Errorf("p%d: %v of %d samples", percent, d, need-1)
		}
		l.ObserveResponse(time.Second)
		if d := l.Estimate(time.Second + FoldEvery - 1); d != 0 {
			t.Errorf("p%d: %v before the next fold", percent, d)
		}
		if d := l.Estimate(time.Second + FoldEvery); d < time.Second {
			t.Errorf("p%d: %v of %d samples", percent, d, need)
		}
	}
	for _, percent := range []int{-5, 0, 100, 1000} {
		if l := NewLatencies(percent); l.percent < 1 || l.percent > 99 || l.need() < 1 || l.need() > 1000 {
			t.Errorf("%d %%: %v of %v", percent, l.percent, l.need())
		}
	}
}

// A busy route follows an increase in about a second and a decrease within a minute. A quiet one
// keeps its estimate.
func TestLatenciesFollowChanges(t *testing.T) {
	l, now := NewLatencies(95), time.Duration(0)
	second := func(n int, d time.Duration) time.Duration {
		for range n {
			l.ObserveResponse(d)
		}
		now += FoldEvery
		return l.Estimate(now)
	}
	const fast, slow = 10 * time.Millisecond, 300 * time.Millisecond
	for range 100 {
		second(1000, fast)
	}
	if d := second(1000, slow); d > 2*fast && d < slow {
		t.Errorf("after a slow second %v", d)
	}
	if d := second(1000, slow); d < slow {
		t.Errorf("after two slow seconds %v", d)
	}
	for range 60 {
		second(1000, slow)
	}
	back := 0
	for second(1000, fast) >= slow {
		if back++; back > 60 {
			t.Fatal("it does not forget")
		}
	}
	if back < 20 {
		t.Errorf("forgotten after %d s", back)
	}
	now += 100 * time.Hour
	if d := second(1, slow); d < fast || d > 2*fast {
		t.Errorf("a quiet route knows %v", d)
	}
	if kept := l.sums.Total; kept < keepSamples*l.need() {
		t.Errorf("%v samples are left", kept)
	}
}

// An attempt overtaken by its hedge has no latency. Leaving it out would lower the estimate every
// second. Counted, the share of hedges remains that of the percentile.
func TestHedgingDoesNotPullItsOwnEstimateDown(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, percent := range []int{50, 95, 99} {
		l, now := NewLatencies(percent), time.Duration(0)
		hedges, sent := 0, 0
		for second := range 300 {
			after := l.Estimate(now)
			for range 2000 {
				d := time.Duration(0.010 * math.Exp(0.5*rnd.NormFloat64()) * float64(time.Second))
				switch {
				case after == 0 || d <= after:
					l.ObserveResponse(d)
				default: // the hedge gets its response at once
					l.ObserveAbandoned(after + time.Duration(rnd.Int64N(int64(time.Millisecond))))
					if second >= 200 {
						hedges++
					}
				}
				if second >= 200 {
					sent++
				}
			}
			now += FoldEvery
		}
		beyond := 100 - float64(percent)
		if share := 100 * float64(hedges) / float64(sent); share > beyond+0.5 || share < beyond/3 {
			t.Errorf("p%d: %.2f %% hedged, want at most %.0f %%", percent, share, beyond)
		}
	}
}

// A request that was abandoned early shows nothing.
func TestAbandonedBelowTheEstimateIsIgnored(t *testing.T) {
	l := NewLatencies(95)
	l.ObserveAbandoned(time.Hour) // no estimate yet
	for range 200 {
		l.ObserveResponse(10 * time.Millisecond)
	}
	before := l.Estimate(time.Second)
	for range 100_000 {
		l.ObserveAbandoned(before - 1)
	}
	if after := l.Estimate(3 * time.Second); after != before || l.sums.Total != 200 {
		t.Errorf("%v, then %v, of %v samples", before, after, l.sums.Total)
	}
	for range 100 {
		l.ObserveAbandoned(before)
	}
	if after := l.Estimate(5 * time.Second); after <= before {
		t.Errorf("still %v", after)
	}
}

func TestLatenciesFromManyGoroutines(t *testing.T) {
	l := NewLatencies(50)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 2000 {
				l.ObserveResponse(time.Millisecond)
				l.ObserveAbandoned(time.Microsecond)
				if d := l.Estimate(time.Duration(i*j) * time.Millisecond); d != 0 && (d < time.Millisecond || d > 2*time.Millisecond) {
					t.Errorf("estimate %v", d)
				}
			}
		})
	}
	wg.Wait()
	if l.Estimate(time.Hour); l.sums.Total == 0 {
		t.Error("nothing was counted")
	}
}

func TestLatenciesDoNotAllocate(t *testing.T) {
	l, now := NewLatencies(95), time.Duration(0)
	if n := testing.AllocsPerRun(1000, func() { l.ObserveResponse(now); now += FoldEvery; l.Estimate(now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLatencies(b *testing.B) {
	l, now := NewLatencies(95), time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		now += 13 * time.Microsecond
		l.ObserveResponse(now % (100 * time.Millisecond))
		l.Estimate(now)
	}
}

func TestSlowerAsksAllButTheQuickestThird(t *testing.T) {
	var w Window
	if w.Slower(time.Second) {
		t.Error("slow without a latency")
	}
	for range 2 {
		w.Add(time.Millisecond)
	}
	for range 4 {
		w.Add(2 * time.Second)
	}
	if w.Slower(time.Second) {
		t.Error("slow although a third is quick")
	}
	if w.Add(2 * time.Second); !w.Slower(time.Second) {
		t.Error("not slow although five of seven are")
	}
}
