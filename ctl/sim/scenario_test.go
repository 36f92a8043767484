package sim

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

var seeds = flag.Int("seeds", usualSeeds, "how many seeds to play each scenario with; -v shows median and worst")

// The constants of breaker.Guard must pass the storms by which they were chosen.
func TestScenariosMeetTheirGoals(t *testing.T) {
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var all []Outcome
			for seed := uint64(1); seed <= uint64(*seeds); seed++ {
				_, o := s.Play(seed)
				all = append(all, o)
				for _, missed := range s.Goal.Missed(o) {
					t.Errorf("seed %d: %s: %+v", seed, missed, o)
				}
			}
			good, goodWorst := spread(all, func(o Outcome) time.Duration { return o.Good })
			errs, errsWorst := spread(all, func(o Outcome) time.Duration { return o.Errors })
			most, mostWorst := spread(all, func(o Outcome) int { return o.AtOnce })
			waits, waitsWorst := spread(all, func(o Outcome) int { return o.Waits })
			t.Logf("good %v/%v errors %v/%v at once %d/%d waits %d/%d", good, goodWorst, errs, errsWorst, most, mostWorst, waits, waitsWorst)
		})
	}
}

// spread returns the median and the worst.
func spread[T int | time.Duration](all []Outcome, of func(Outcome) T) (median, worst T) {
	var v []T
	for _, o := range all {
		v = append(v, of(o))
	}
	slices.Sort(v)
	return v[len(v)/2], v[len(v)-1]
}

// Scenario is a storm and the goal that retryproxy must meet with its default settings.
type Scenario struct {
	Name   string
	About  string // one sentence
	Config Config
	Goal   Goal
}

// Goal limits a Result. Times are from the end of the first fault.
type Goal struct {
	Good    time.Duration // good responses (5 s mean) are back at 95 % of normal; 0 = no limit
	Errors  time.Duration // errors and abandoned tries are under 5 % and stay there; 0 = no limit
	First   time.Duration // the first good response; 0 = no limit
	AtOnce  int           // maximum of requests in the server, at any time; 0 = no limit
	NoWaits bool          // no request waits, is refused or fails
	NoFails bool          // no request fails, however long it takes
}

// Outcome is the result of a scenario in the terms of its goal.
type Outcome struct {
	// Never if it did not happen.
	Good, Errors, First time.Duration

	AtOnce     int
	Waits      int // requests that waited for the breaker or the limit
	Fails      int // tries that got no 200 in time
	Opened     int // how often a breaker was opened
	LimitBound int // how often overload bound a limit
}

// Play runs the scenario with a seed.
func (s *Scenario) Play(seed uint64) (*Result, Outcome) {
	c := s.Config
	c.Seed = seed
	r := Run(c)
	all := r.Sum(0, c.Length)
	o := Outcome{First: r.First, AtOnce: all.AtOnce, Waits: r.Queued, Fails: all.Bad + all.Late}
	for i := range r.Guards {
		for _, n := range r.Guards[i].Opened {
			o.Opened += int(n)
		}
		o.LimitBound += int(r.Guards[i].LimitBound)
	}
	if len(c.Faults) > 0 {
		f := c.Faults[0]
		perSecond := float64(c.Clients.N) / c.Clients.Every.Seconds()
		o.Good = r.GoodputRecovered(f.At+f.For, perSecond, 0.95)
		o.Errors = r.ErrorsUnder(f.At+f.For, 0.05)
	}
	return r, o
}

// Missed returns descriptions of the parts of the goal that were missed; nil if none.
func (g Goal) Missed(o Outcome) []string {
	var missed []string
	miss := func(is bool, what string) {
		if is {
			missed = append(missed, what)
		}
	}
	miss(g.Good > 0 && o.Good > g.Good, "good responses are back too late")
	miss(g.Errors > 0 && o.Errors > g.Errors, "errors last too long")
	miss(g.First > 0 && o.First > g.First, "the first good response comes too late")
	miss(g.AtOnce > 0 && o.AtOnce > g.AtOnce, "too many requests at the server at once")
	miss(g.NoWaits && (o.Waits > 0 || o.Opened > 0 || o.LimitBound > 0), "somebody had to wait at a healthy upstream")
	miss((g.NoWaits || g.NoFails) && o.Fails > 0, "somebody failed")
	return missed
}

// Scenarios returns the storms by which the constants of breaker.Guard were chosen: first
// those that issue 3 asks for, then others.
func Scenarios() []Scenario {
	return append(append(asked(), further()...), healthy()...)
}

// through returns Default with ViaProxy and a change.
func through(change func(*Config)) Config {
	c := Default()
	c.Via = ViaProxy
	change(&c)
	return c
}

const (
	goodGoal   = 2 * time.Second
	errorsGoal = 5 * time.Second
	stormGoal  = 150
)

// exponential returns a client's own full-jitter backoff of up to ten seconds.
func exponential() backoff.Strategy {
	b, err := backoff.New("full-jitter", backoff.Options{Max: 10 * time.Second})
	if err != nil {
		panic(err) // the options are constants
	}
	return b
}

func asked() []Scenario {
	goal := Goal{Good: goodGoal, Errors: errorsGoal, AtOnce: stormGoal}
	return []Scenario{
		{"stop", "The server is stopped for 40 s and goes on; clients are naive.",
			through(func(*Config) {}), goal},
		{"kill", "The server is killed and its port refuses for 40 s.",
			through(func(c *Config) { c.Faults[0].Kind = Kill }), goal},
		{"reject", "The server answers 503 to everything for 40 s, as slowly as ever.",
			through(func(c *Config) { c.Faults[0].Kind = Reject }), goal},
		{"reject-fast", "The server answers 503 to everything for 40 s, at once.",
			through(func(c *Config) { c.Faults[0].Kind, c.Faults[0].After = Reject, time.Millisecond }), goal},
		{"stop-backoff", "Stopped for 40 s; clients back off exponentially themselves.",
			through(func(c *Config) { c.Clients.Backoff = exponential() }), goal},
		{"stop-fifty", "Stopped for 40 s; fifty proxies of twenty clients each.",
			through(func(c *Config) { c.Proxies = 50 }), Goal{Good: goodGoal, Errors: errorsGoal, AtOnce: 60 + 3*50}},
		{"stop-fifty-early", "For 20 s, eight seconds after the start, when each has seen some sixteen responses; twenty URLs.",
			through(func(c *Config) {
				c.Faults[0].At, c.Faults[0].For, c.Proxies, c.Clients.URLs = 8*time.Second, 20*time.Second, 50, 20
			}), Goal{Good: goodGoal, Errors: errorsGoal, AtOnce: 265}},
		{"kill-fifty", "Killed for 40 s; fifty proxies of twenty clients each.",
			through(func(c *Config) { c.Faults[0].Kind, c.Proxies = Kill, 50 }), Goal{Good: goodGoal, Errors: errorsGoal, AtOnce: 60 + 3*50}},
		{"restart", "A thousand requests in flight when the application restarts for 15 s.",
			through(func(c *Config) {
				c.Faults[0].Kind, c.Faults[0].For = Kill, 15*time.Second
				c.Clients.Every, c.Clients.Patience = 10*time.Millisecond, 30*time.Second
				c.Server.Free, c.Length = 2000, 45*time.Second
			}), Goal{NoFails: true, First: 250 * time.Millisecond}},
	}
}

// quick returns a storm with a server that answers in 10 ms under any load, 80 requests per
// second, and clients that wait a minute.
func quick(change func(*Config)) Config {
	return through(func(c *Config) {
		c.Clients = Clients{N: 800, Every: 10 * time.Second, Patience: time.Minute}
		c.Server.Base, c.Server.Free = 10*time.Millisecond, 1<<30
		c.Length = 80 * time.Second
		change(c)
	})
}

// coldAfter returns an outage of five seconds after which the server is slower.
func coldAfter(kind FaultKind, times float64) []Fault {
	const at, out = 15 * time.Second, 5 * time.Second
	return []Fault{{Kind: kind, At: at, For: out}, {Kind: Slower, At: at + out, For: 40 * time.Second, Times: times}}
}

func further() []Scenario {
	goal := Goal{Good: goodGoal, Errors: errorsGoal, AtOnce: stormGoal}
	late := Goal{Good: 3 * time.Second, Errors: errorsGoal}
	return []Scenario{
		{"stop-fixed", "Stopped; a fixed limit of 30, which abandoned attempts do not count for.",
			through(func(c *Config) {
				c.Proxy.Guard.ConcurrencyLimit, c.Proxy.Guard.FixedLimit = breaker.ConcurrencyLimitFixed, 30
			}), Goal{Good: 3 * time.Second, Errors: 6 * time.Second, AtOnce: 60}},
		{"stop-fixed-no-breaker", "Stopped; a fixed limit of 60 and no breaker, so that abandoned attempts count.",
			through(func(c *Config) {
				c.Proxy.Guard.NoBreaker = true
				c.Proxy.Guard.ConcurrencyLimit, c.Proxy.Guard.FixedLimit = breaker.ConcurrencyLimitFixed, 60
			}), Goal{Good: 4 * time.Second, Errors: 6 * time.Second, AtOnce: 800}}, // abandoned attempts are freed all together, every 4 s
		{"stop-five", "Stopped; five proxies.", through(func(c *Config) { c.Proxies = 5 }), goal},
		{"stop-spread", "Stopped; times of single answers differ (lognormal, 0.5).",
			through(func(c *Config) { c.Server.Spread = 0.5 }), goal},
		{"stop-tenfold", "Stopped; one request in ten takes ten times as long.",
			through(func(c *Config) { c.Server.Slow, c.Server.SlowTimes = 0.1, 10 }), late},
		{"stop-patient", "Stopped; clients wait ten seconds.",
			through(func(c *Config) { c.Clients.Patience = 10 * time.Second }), goal},
		{"stop-impatient", "Stopped; clients wait 200 ms.",
			through(func(c *Config) { c.Clients.Patience = 200 * time.Millisecond }), goal},
		{"stop-shed", "Stopped; held for a second only, as by default before a remote upstream.",
			through(func(c *Config) { c.Proxy.BreakerQueueTimeout = time.Second }), goal},
		{"stop-short", "Stopped for five seconds.",
			through(func(c *Config) { c.Faults[0].For = 5 * time.Second }), goal},
		{"stop-early", "Stopped one second after the proxy's start.",
			through(func(c *Config) { c.Faults[0].At = time.Second }), goal},
		{"stop-many", "Stopped; two hundred proxies of five clients each.",
			through(func(c *Config) { c.Proxies = 200 }), Goal{Good: 3 * time.Second, Errors: errorsGoal, AtOnce: 60 + 5*200}},
		{"kill-backoff", "Killed; clients back off exponentially themselves.",
			through(func(c *Config) { c.Faults[0].Kind, c.Clients.Backoff = Kill, exponential() }), late},
		{"surge", "Clients come thirty times as often for 40 s.",
			through(func(c *Config) {
				c.Faults[0] = Fault{Kind: Surge, At: 15 * time.Second, For: 40 * time.Second, Times: 30}
			}), late},
		{"cache-lost", "A cache of a thousand URLs loses its content. Behind it, 30 at once take 200 ms, and each 15 more a third longer.",
			through(func(c *Config) {
				c.Clients = Clients{N: 2000, Every: 10 * time.Second, Patience: time.Second, RetryAfter: 100 * time.Millisecond}
				c.Server = Server{Base: 200 * time.Millisecond, Free: 30, Factor: 1.3, Step: 15, Look: 50 * time.Millisecond, URLs: 1000, HitTime: 2 * time.Millisecond}
				c.Faults[0] = Fault{Kind: Forget, At: 15 * time.Second, For: 100 * time.Millisecond}
				c.Length = time.Minute
			}), Goal{Errors: 18 * time.Second}}, // the median is 2.6 s, and nineteen of twenty seeds need less than 8 s
		{"kill-cold", "Killed for five seconds; 40 s from then on everything takes 25 times as long, whatever the load.",
			quick(func(c *Config) { c.Faults = coldAfter(Kill, 25) }), Goal{NoFails: true, Good: 4 * time.Second}},
		{"kill-icy", "The same, a hundred times as long.",
			quick(func(c *Config) { c.Faults = coldAfter(Kill, 100) }), Goal{NoFails: true, Good: 15 * time.Second}},
		{"stop-cold", "Stopped for five seconds; 40 s from then on everything takes 25 times as long, whatever the load.",
			quick(func(c *Config) { c.Faults = coldAfter(Stop, 25) }), Goal{NoFails: true, Good: 4 * time.Second}},
		{"hundredfold", "Everything takes a hundred times as long for 40 s, whatever the load, without any outage.",
			quick(func(c *Config) {
				c.Faults = []Fault{{Kind: Slower, At: 15 * time.Second, For: 40 * time.Second, Times: 100}}
			}), Goal{NoFails: true}},
		{"slower", "Everything takes three times as long for 40 s, whatever the load.",
			through(func(c *Config) {
				c.Faults[0] = Fault{Kind: Slower, At: 15 * time.Second, For: 40 * time.Second, Times: 3}
			}), late},
	}
}

// healthy returns scenarios of upstreams that sustain any load, and clients that wait for
// two minutes.
func healthy() []Scenario {
	well := func(change func(*Config)) Config {
		return through(func(c *Config) {
			c.Faults = nil
			c.Server.Free = 1 << 30
			c.Clients.Patience, c.Proxy.AttemptTimeout = 2*time.Minute, 2*time.Minute
			c.Length = 2 * time.Minute
			change(c)
		})
	}
	bursts := []Fault{{Kind: Burst, At: 20 * time.Second, N: 300}, {Kind: Burst, At: 40 * time.Second, N: 300}}
	goal := Goal{NoWaits: true}
	return []Scenario{
		{"healthy", "Peace.", well(func(*Config) {}), goal},
		{"healthy-spread", "Times of single answers differ (lognormal, 0.7).",
			well(func(c *Config) { c.Server.Spread = 0.7 }), goal},
		{"healthy-few", "Ten clients.",
			well(func(c *Config) { c.Clients.N, c.Server.Spread = 10, 0.5 }), goal},
		{"healthy-tenfold", "One request in ten takes ten times as long.",
			well(func(c *Config) { c.Server.Slow, c.Server.SlowTimes = 0.1, 10 }), goal},
		{"healthy-tenfold-half", "Every second request takes ten times as long.",
			well(func(c *Config) { c.Server.Slow, c.Server.SlowTimes = 0.5, 10 }), goal},
		{"healthy-tenfold-rare", "One request in a hundred takes ten times as long; twenty clients.",
			well(func(c *Config) { c.Server.Slow, c.Server.SlowTimes, c.Clients.N = 0.01, 10, 20 }), goal},
		{"healthy-polls", "One request in twenty is a long poll of 30 s.",
			well(func(c *Config) { c.Server.Slow, c.Server.SlowTimes, c.Clients.N = 0.05, 300, 200 }), goal},
		{"healthy-polls-half", "Every second request is a long poll of 30 s; twenty clients.",
			well(func(c *Config) { c.Server.Slow, c.Server.SlowTimes, c.Clients.N = 0.5, 300, 20 }), goal},
		{"healthy-burst", "Three hundred at once, twice.",
			well(func(c *Config) { c.Faults = bursts }), goal},
		{"healthy-burst-early", "Three hundred at once, a moment after the start.",
			well(func(c *Config) {
				c.Faults = []Fault{{Kind: Burst, At: 100 * time.Millisecond, N: 300}, {Kind: Burst, At: 2 * time.Second, N: 300}}
			}), goal},
		{"healthy-burst-tenfold", "Three hundred at once, where one in ten takes ten times as long.",
			well(func(c *Config) { c.Faults, c.Server.Slow, c.Server.SlowTimes = bursts, 0.1, 10 }), goal},
		{"healthy-surge", "Thirty times the load for a minute.",
			well(func(c *Config) {
				c.Faults = []Fault{{Kind: Surge, At: 20 * time.Second, For: time.Minute, Times: 30}}
			}), goal},
		{"healthy-pauses", "The server pauses for 200 ms every five seconds.",
			well(func(c *Config) {
				c.Server.Base, c.Server.Look = 5*time.Millisecond, 5*time.Millisecond
				for at := 5 * time.Second; at < c.Length; at += 5 * time.Second {
					c.Faults = append(c.Faults, Fault{Kind: Stop, At: at, For: 200 * time.Millisecond})
				}
			}), goal},
	}
}
