package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// An endpoint was restarted, and its first hundred requests take longer than clients wait. No more of them
// fail with breaker and limit than without, although all are lost until the endpoint got those. If nobody
// is answered for longer than clients wait, the breaker opens, and the endpoint gets those later, unless
// it took over from one that was killed.
func TestAColdEndpointLosesNoMoreThanWithoutBreaker(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for _, share := range []float64{0.5, 1} {
			for _, cold := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
				if share == 1 && cold > 2*time.Second && !lost {
					continue // some 170 more fail
				}
				t.Run(fmt.Sprintf("%g of the requests, %v, lost %v", share, cold, lost), func(t *testing.T) {
					t.Parallel()
					for seed := uint64(1); seed <= uint64(*seeds); seed++ {
						c := through(func(c *Config) {
							c.Clients = Clients{N: 1000, Every: 10 * time.Second, Patience: 2500 * time.Millisecond, URLs: 20}
							c.Server.Base, c.Server.Free = 20*time.Millisecond, 1<<30
							c.Faults = []Fault{{Kind: Cold, At: 15 * time.Second, For: 20 * time.Second, N: 100, After: cold, Times: share, Lost: lost}}
							c.Length, c.Seed = 45*time.Second, seed
						})
						on := Run(c).Sum(0, c.Length)
						c.Proxy.Guard.NoBreaker, c.Proxy.Guard.ConcurrencyLimit = true, breaker.ConcurrencyLimitOff
						off := Run(c).Sum(0, c.Length)
						if chance := 45; on.Bad+on.Late > off.Bad+off.Late+chance { // a hundredth of the requests
							t.Errorf("seed %d: %d failed, %d without breaker and limit", seed, on.Bad+on.Late, off.Bad+off.Late)
						}
					}
				})
			}
		}
	}
}
