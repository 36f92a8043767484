package breaker

import (
	"math"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// seekRound returns a round of one second with this size, and good responses after latency.
func seekRound(size float64, good int, latency time.Duration, bad int) round {
	r := round{began: 1, took: time.Second, size: size, bad: bad}
	for range good {
		r.add(latency)
	}
	return r
}

// How seek moves the size, where ten in flight and 100 ms are usual.
func TestHowSeekMoves(t *testing.T) {
	var u latency.Baseline
	var usual latency.Sums
	for range 100 {
		usual.Add(100 * ms)
	}
	u.Fold(&usual, time.Second, 10, true)
	for name, tc := range map[string]struct {
		last, round round
		want        float64
		shifted     bool
	}{
		"nobody waits":            {round{}, seekRound(20, 100, 300*ms, 0), 20, false},
		"some wait":               {round{}, seekRound(20, 100, 100*ms, 0), 22, false},
		"some wait again":         {seekRound(20, 100, 100*ms, 0), seekRound(20, 100, 100*ms, 0), 22, false},
		"a fifth fails":           {round{}, seekRound(20, 80, 100*ms, 20), 16, false},
		"fewer fail":              {round{}, seekRound(20, 81, 100*ms, 19), 22, false},
		"slow":                    {round{}, seekRound(20, 100, 300*ms, 0), 16, false},
		"slow near the usual":     {round{}, seekRound(11, 100, 300*ms, 0), 10, false},
		"slow at the usual":       {round{}, seekRound(10, 100, 300*ms, 0), 10, true},
		"goodput follows up":      {seekRound(10, 50, 300*ms, 0), seekRound(20, 100, 300*ms, 0), 22, false},
		"goodput follows down":    {seekRound(20, 100, 300*ms, 0), seekRound(16, 80, 300*ms, 0), 20, true},
		"goodput does not follow": {seekRound(20, 100, 300*ms, 0), seekRound(16, 98, 245*ms, 0), 12.8, false},
	} {
		w := window{phase: seek, size: tc.round.size, last: tc.last, round: tc.round, waitedAt: 3}
		if w.round.began = 2; name == "nobody waits" {
			w.waitedAt = 2
		}
		if size, shifted := w.next(&u); math.Abs(size-tc.want) > 1e-9 || shifted != tc.shifted {
			t.Errorf("%s: %v, shifted %v, want %v, %v", name, size, shifted, tc.want, tc.shifted)
		}
	}
}

// Two slow responses do not replace what is known.
func TestSeekRelearnsFromEnoughResponses(t *testing.T) {
	for _, n := range []int{latency.KnownSamples - 1, latency.KnownSamples} {
		var u latency.Baseline
		var usual latency.Sums
		for range 100 {
			usual.Add(100 * ms)
		}
		u.Fold(&usual, time.Second, 10, true)
		w := window{phase: seek, size: 10, round: seekRound(10, n, time.Second, 0), waitedAt: 2}
		w.step(1+maxRoundTime, &counters{}, &u)
		if relearnt := u.Mean() > 500*ms; relearnt != (n == latency.KnownSamples) || relearnt != (w.phase == start) {
			t.Errorf("%d responses: mean %v, phase %d", n, u.Mean(), w.phase)
		}
	}
}
