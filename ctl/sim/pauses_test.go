package sim

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// pauses is the row "pauses" of bench/scorecard: a server of 200 requests a second stands still for 0.7 s every
// 5 s. Clients send 115 a second, wait 0.5 s, and try four times. The first pause begins at another time in
// the rhythm of requests with each seed.
func pauses(seed uint64) Config {
	return through(func(c *Config) {
		const perSecond, clients = 115, 300 // a client's last try has ended when its next request comes
		c.Clients = Clients{
			N: clients, Every: clients * time.Second / perSecond, Regular: true, Tries: 4, URLs: 20,
			Patience: 500 * time.Millisecond, RetryAfter: 100 * time.Millisecond,
		}
		c.Server = Server{Base: 50 * time.Millisecond, Free: 1 << 30, Look: 50 * time.Millisecond, Workers: 10, Spread: 0.01}
		c.Faults = nil
		for at := 8*time.Second + time.Duration(seed)*7*time.Millisecond; at < 29*time.Second; at += 5 * time.Second {
			c.Faults = append(c.Faults, Fault{Kind: Stop, At: at, For: 700 * time.Millisecond})
		}
		c.Length, c.Seed = 43*time.Second, seed
	})
}

// A pause that is longer than clients wait loses nobody, because the breaker opens before it ends: the 40 requests
// that the server has then are done in time. If the silence is noticed 40 ms later, it opens too late in every
// second play, and the server gets a hundred at once. Without breaker, most requests after the first pause are lost.
func TestPausesOfTheServerLoseNobody(t *testing.T) {
	for seed := uint64(1); seed <= 20; seed++ {
		c := pauses(seed)
		r := Run(c)
		if peak := r.Sum(0, c.Length).AtOnce; peak > 75 || r.Lost > 0 {
			t.Errorf("seed %d: %d lost, %d at once", seed, r.Lost, peak)
		}
	}
	c := pauses(1)
	c.Proxy.Guard.NoBreaker, c.Proxy.Guard.ConcurrencyLimit = true, breaker.ConcurrencyLimitOff
	if r := Run(c); r.Lost < 3000 {
		t.Errorf("%d lost without breaker, want most of 4 000", r.Lost)
	}
}
