package sim

import (
	"fmt"
	"testing"
	"time"
)

// slowdown is an upstream that answers in 10 ms however many ask, and clients who
// ask it perSecond times a second, each after a pause of mean pause.
func slowdown(perSecond int, pause time.Duration, faults []Fault) Config {
	return quick(func(c *Config) {
		c.Clients.Every = pause
		c.Clients.N = int(float64(perSecond) * pause.Seconds())
		c.Faults = faults
	})
}

// Nobody fails at an upstream that becomes slower, whatever the load, though for a
// second or two it cannot be told from one that stopped: without an outage and after
// one, with few clients and many, with clients who come independently of the responses and
// with such as wait for them.
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
					continue // with the race detector a hundredth of the rest is enough
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
