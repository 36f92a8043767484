package ratelimit

import (
	"math"
	"testing"
	"time"
)

// counting is a vendor that counts requests in its own way, and a queue for it as the proxy has one.
type counting struct {
	t       *testing.T
	q       Buckets
	kind    Kind
	model   Model
	limit   float64
	level   float64
	at      time.Duration
	request func(n int) (e Estimate, used Cost, counted float64) // used: the zero value if not stated
	latency time.Duration

	waiting  []*job
	flying   []*job
	sent     int
	rejected int
	refused  int
	served   int
	counted  float64
}

type job struct {
	n        int
	e        Estimate
	used     Cost
	counted  float64
	queued   Cost
	cost     Cost
	since    time.Duration
	stamp    Stamp
	back     time.Duration
	reading  Reading
	rejected bool
}

func (c *counting) advance(now time.Duration) {
	if c.model == Refilling {
		c.level = min(c.limit, c.level+c.limit/60*(now-c.at).Seconds())
	} else if now/time.Minute > c.at/time.Minute {
		c.level = c.limit
	}
	c.at = now
}

func (c *counting) arrive(now time.Duration, j *job) {
	j.queued, j.since = c.q.Expect(j.e), now
	sum := j.queued
	for _, w := range c.waiting {
		sum = sum.Plus(w.queued)
	}
	if len(c.waiting) > 0 || !c.q.Ready(now, j.queued) {
		if c.q.Wait(now, sum, len(c.waiting)+1) > time.Minute {
			c.refused++
			return
		}
	}
	c.waiting = append(c.waiting, j)
}

func (c *counting) pump(now time.Duration) {
	for len(c.waiting) > 0 && (c.q.Ready(now, c.q.Expect(c.waiting[0].e)) || now-c.waiting[0].since > time.Minute) {
		j := c.waiting[0]
		c.waiting = c.waiting[1:]
		if now-j.since > time.Minute {
			c.refused++
			continue
		}
		j.cost = c.q.Expect(j.e)
		j.stamp = c.q.Take(now, j.cost)
		c.sent++
		c.advance(now)
		if j.rejected = c.level < min(j.counted, c.limit); !j.rejected {
			c.level -= j.counted
		}
		j.reading = Reading{Row: 1, Kind: c.kind, Model: c.model, Limit: c.limit, Remaining: math.Floor(c.level), Reset: time.Duration((c.limit - c.level) / c.limit * 60e9)}
		if c.model == Windowed {
			j.reading.Reset = time.Minute - now%time.Minute
		}
		j.back = now + c.latency
		c.flying = append(c.flying, j)
	}
}

func (c *counting) land(now time.Duration) {
	for len(c.flying) > 0 && c.flying[0].back <= now {
		j := c.flying[0]
		c.flying = c.flying[1:]
		if j.rejected {
			c.rejected++
			c.q.GiveBack(now, j.cost)
		}
		c.q.Calibrate(now, &j.stamp, j.e, j.reading, j.rejected)
		c.q.Learn(now, &j.stamp, j.reading, j.rejected)
		if j.rejected {
			j.queued = c.q.Expect(j.e)
			c.waiting = append(c.waiting, j) // it returns after a backoff, which is no longer than this queue
			continue
		}
		c.served++
		c.counted += j.counted
		if j.used != (Cost{}) {
			c.q.Settle(now, j.cost, j.e, j.used)
		}
	}
}

// run sends a request per gap for a time.
func (c *counting) run(gap, long time.Duration) {
	c.q.Probe, c.level = 2*time.Minute, c.limit
	n := 0
	for now := time.Second; now < long+time.Second; now += 20 * time.Millisecond {
		if now >= time.Second+time.Duration(n)*gap {
			j := &job{n: n}
			j.e, j.used, j.counted = c.request(n)
			c.arrive(now, j)
			n++
		}
		c.land(now)
		c.pump(now)
	}
	c.t.Logf("%d sent, %d rejected, %d refused, %d served, %d waiting", c.sent, c.rejected, c.refused, c.served, len(c.waiting))
}

// What the upstream would accept is not refused, however much larger the estimate is, whatever it is
// that counts less, and whether responses state their usage or not.
func TestAnEstimateRefusesNothing(t *testing.T) {
	always := func(e Estimate, used Cost, counted float64) func(int) (Estimate, Cost, float64) {
		return func(int) (Estimate, Cost, float64) { return e, used, counted }
	}
	first := func(e Estimate, creation, used Cost, counted float64) func(int) (Estimate, Cost, float64) {
		return func(n int) (Estimate, Cost, float64) {
			if n == 0 {
				return e, creation, float64(creation.Input)
			}
			return e, used, counted
		}
	}
	for name, tc := range map[string]counting{
		"an image of 1.2 MB":                   {kind: Tokens, request: always(Estimate{Input: 300_000, Output: 200}, Cost{300, 100}, 400)},
		"an image, usage not stated":           {kind: Tokens, request: always(Estimate{Input: 300_000, Output: 200}, Cost{}, 400)},
		"max_tokens above the limit":           {kind: Tokens, request: always(Estimate{Input: 100, Output: 64_000}, Cost{100, 300}, 400)},
		"max_tokens, usage not stated":         {kind: Tokens, request: always(Estimate{Input: 100, Output: 64_000}, Cost{}, 400)},
		"max_tokens of a limit of output":      {kind: OutputTokens, request: always(Estimate{Input: 100, Output: 64_000}, Cost{100, 300}, 300)},
		"a trillion allowed":                   {kind: Tokens, request: always(Estimate{Input: 100, Output: 1e12}, Cost{100, 300}, 400)},
		"a trillion, usage not stated":         {kind: Tokens, request: always(Estimate{Input: 100, Output: 1e12}, Cost{}, 400)},
		"cache reads that do not count":        {kind: InputTokens, request: always(Estimate{Input: 25_000, Output: 1000}, Cost{100, 300}, 100)},
		"the first fills the cache":            {kind: InputTokens, request: first(Estimate{Input: 20_000, Output: 1000}, Cost{18_000, 300}, Cost{100, 300}, 100)},
		"usage includes reads, the limit none": {kind: Tokens, request: always(Estimate{Input: 25_000, Output: 1000}, Cost{24_000, 300}, 400)},
		"no bound of the output":               {kind: Tokens, request: always(Estimate{Input: 100, Unbounded: true}, Cost{100, 300}, 400)},
		"slow responses":                       {kind: Tokens, request: always(Estimate{Input: 300_000, Output: 200}, Cost{300, 100}, 400), latency: 5 * time.Second},
	} {
		for model, renewal := range []string{"bucket", "window"} {
			t.Run(name+", "+renewal, func(t *testing.T) {
				c := tc
				c.t, c.limit, c.model = t, 30_000, Model(model)
				c.latency = max(c.latency, 300*time.Millisecond)
				c.run(time.Second, 3*time.Minute)
				if c.refused > 0 || c.rejected > 2 || len(c.waiting) > 10 {
					t.Errorf("%d refused, %d rejected, %d wait, of %d", c.refused, c.rejected, len(c.waiting), c.sent)
				}
			})
		}
	}
}

// A vendor that counts all the output that a request allows is asked for no more than it has, although
// the usage says less. All of its limit is used.
func TestAVendorThatCountsWhatIsAllowed(t *testing.T) {
	for name, usage := range map[string]Cost{"usage stated": {100, 100}, "not stated": {}} {
		t.Run(name, func(t *testing.T) {
			c := counting{t: t, kind: Tokens, limit: 60_000, latency: 2 * time.Second,
				request: func(int) (Estimate, Cost, float64) { return Estimate{Input: 100, Output: 2000}, usage, 2100 }}
			c.run(time.Second, 20*time.Minute)
			used, rejected := c.counted/(c.limit*21), float64(c.rejected)/float64(c.sent)
			if used < 0.95 || rejected > 0.02 {
				t.Errorf("%.1f %% used, %.2f %% rejected", 100*used, 100*rejected)
			}
		})
	}
}

// A request that allows far more output than its upstream ever makes, or that is far longer than what its
// upstream counts, says no more about the others than one that fills the limit.
func TestOneRequestDoesNotMakeTheOthersLookFree(t *testing.T) {
	usual := Estimate{Input: 1000, Output: 1000}
	const limit = 10_000
	for _, tc := range []struct {
		name           string
		one            Estimate
		stated, before bool // usage is stated; another attempt is earlier
		output         int64
	}{
		{"output, usage stated", Estimate{Input: 1000, Output: 1e12}, true, true, 100},
		{"output, headers only", Estimate{Input: 1000, Output: 1e12}, false, true, 100},
		{"output at first, usage stated", Estimate{Input: 1000, Output: 1e12}, true, false, 50},
		{"output at first, headers only", Estimate{Input: 1000, Output: 1e12}, false, false, 50},
		{"input, usage stated", Estimate{Input: 1e6, Output: 1000}, true, true, 0},
		{"input, headers only", Estimate{Input: 1e6, Output: 1000}, false, true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var q Buckets
			attempt := func(e Estimate) {
				s := q.Take(0, q.Expect(e))
				left := Reading{Row: 1, Kind: Tokens, Limit: limit, Remaining: limit - 1600}
				if !tc.stated {
					q.Calibrate(0, &s, e, left, false)
				}
				q.Learn(0, &s, left, false)
				if tc.stated {
					q.Settle(0, q.Expect(e), e, Cost{Input: 800, Output: 800})
				}
			}
			if tc.before {
				attempt(usual)
			}
			attempt(tc.one)
			if c := q.Expect(usual); c.Output < tc.output {
				t.Errorf("expected %+v after one such request", c)
			}
			for range 12 {
				attempt(usual)
			}
			if c := q.Expect(usual); c.Input < 600 || c.Output < 600 {
				t.Errorf("expected %+v after twelve others", c)
			}
			for range 50 {
				attempt(tc.one)
			}
			if c := q.Expect(tc.one); c.Input+c.Output > 2500 {
				t.Errorf("expected %+v after 50 of them that used 1600 each", c)
			}
		})
	}
}

// A limit of requests counts no tokens: responses beside it say nothing of how tokens are counted.
func TestALimitOfRequestsSaysNothingOfTokens(t *testing.T) {
	var q Buckets
	e := Estimate{Input: 20, Output: 300}
	s := q.Take(0, q.Expect(e))
	q.Learn(0, &s, Reading{Row: 1, Kind: Requests, Limit: 100, Remaining: 99}, false)
	for range 10 {
		q.Settle(0, Cost{}, e, Cost{Input: 10, Output: 3})
	}
	if c := q.Expect(e); c != (Cost{20, 300}) {
		t.Errorf("expected %+v of %+v", c, e)
	}
}
