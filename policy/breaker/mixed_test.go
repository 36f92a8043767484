package breaker

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// In front of a healthy upstream no request waits and none is rejected. This also holds if the
// latencies of its endpoints differ tenfold or a hundredfold, whichever is rarer.
func TestEndpointsThatDifferAreLeftAlone(t *testing.T) {
	for _, times := range []time.Duration{10, 100} {
		for _, slow := range []float64{0.01, 0.1, 0.5, 0.9} {
			for _, perSecond := range []float64{5, 100, 400} {
				t.Run(fmt.Sprintf("%d times, %v of them, %v a second", times, slow, perSecond), func(t *testing.T) {
					t.Parallel()
					for seed := range uint64(4) {
						mixed(t, seed, times*10*time.Millisecond, slow, perSecond)
					}
				})
			}
		}
	}
}

// mixed sends for a minute, at random times. A share of the responses takes late, the others 10 ms,
// each with a spread of a fifth.
func mixed(t *testing.T, seed uint64, late time.Duration, slow, perSecond float64) {
	t.Helper()
	type due struct {
		p  Permit
		at time.Duration
	}
	r := rand.New(rand.NewPCG(seed, 3))
	d := newGuardHarness(t, Options{})
	var under []due
	for next := time.Duration(0); next < time.Minute; next += time.Duration(r.ExpFloat64() / perSecond * float64(time.Second)) {
		for len(under) > 0 && under[0].at <= next {
			d.advance(under[0].at - d.now)
			d.handleSignal(d.g.Release(under[0].p, under[0].at, AttemptEnd{Status: 200, Key: 7}))
			under = under[1:]
		}
		d.advance(next - d.now)
		p, v := d.g.Acquire(next, Request{})
		if v != VerdictGo {
			t.Fatalf("seed %d, at %v: verdict %d with %d in flight: %+v", seed, next, v, len(under), d.g.State())
		}
		latency := 10 * time.Millisecond
		if r.Float64() < slow {
			latency = late
		}
		latency = time.Duration(float64(latency) * (0.8 + 0.4*r.Float64()))
		under = append(under, due{p, next + latency})
		slices.SortFunc(under, func(a, b due) int { return cmp.Compare(a.at, b.at) })
	}
}
