package sim

import (
	"fmt"
	"testing"
	"time"
)

// slowdown is an upstream that answers in 10 ms under any load, with clients that send perSecond
// requests per second in total, each after a mean pause of pause.
func slowdown(perSecond int, pause time.Duration, faults []Fault) Config {
	return quick(func(c *Config) {
		c.Clients.Every = pause
		c.Clients.N = int(float64(perSecond) * pause.Seconds())
		c.Faults = faults
	})
}

// No request fails if the upstream becomes slower independent of load, although for a second or two
// it looks as if it had stopped. This holds without an outage and after one, with few clients and
// many, and whether clients wait for responses or not.
func TestASlowerUpstreamFailsNobody(t *testing.T) {
	const at, long = 15 * time.Second, 40 * time.Second
	plays := usualSeeds
	if *seeds != usualSeeds {
		plays = *seeds
	}
	for _, way := range []struct {
		name   string
		pause  time.Duration
		faults func(times float64) []Fault
	}{
		{"without an outage", 10 * time.Second, func(times float64) []Fault {
			return []Fault{{Kind: Slower, At: at, For: long, Times: times}}
		}},
		{"few clients who ask often", time.Second, func(times float64) []Fault {
			return []Fault{{Kind: Slower, At: at, For: long, Times: times}}
		}},
		{"after it was killed", 10 * time.Second, func(times float64) []Fault { return coldAfter(Kill, times) }},
		{"after it was stopped", 10 * time.Second, func(times float64) []Fault { return coldAfter(Stop, times) }},
	} {
		for _, times := range []float64{3, 10, 25, 100, 200} {
			for _, perSecond := range []int{20, 100, 400} {
				if plays == 1 && perSecond != 100 {
					continue // with the race detector a hundredth is enough
				}
				t.Run(fmt.Sprintf("%s, %g times slower, %d a second", way.name, times, perSecond), func(t *testing.T) {
					t.Parallel()
					for seed := uint64(1); seed <= uint64(plays); seed++ {
						s := Scenario{Config: slowdown(perSecond, way.pause, way.faults(times))}
						_, o := s.Play(seed)
						if o.Fails > 0 {
							t.Errorf("seed %d: %d failed: %+v", seed, o.Fails, o)
						}
						if times <= 10 && way.faults(1)[0].Kind == Slower && o.Waits > 0 {
							t.Errorf("seed %d: %d had to wait where answers never stopped for long: %+v", seed, o.Waits, o)
						}
					}
				})
			}
		}
	}
}
