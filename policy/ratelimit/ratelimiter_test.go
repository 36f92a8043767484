package ratelimit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

func TestParseRateLimit(t *testing.T) {
	for text, want := range map[string]Rate{
		"100/s":   {100, time.Second},
		"1/h":     {1, time.Hour},
		"600/m":   {600, time.Minute},
		"10000/s": {10_000, time.Second},
	} {
		if got, err := ParseRate(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "off", "100", "/s", "0/s", "-1/s", "1.5/s", "10001/s", "1000001/h", "5/d", "5/", "5/ss", "5 /s"} {
		if got, err := ParseRate(text); err == nil || got.Limited() || got.String() != "off" {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

// rateLimitFleet is processes that share a rate limit, in virtual time.
type rateLimitFleet struct {
	rate      Rate
	ledger    Ledger
	processes []*rateLimitProcess
	gone      func(now time.Duration) bool // whether the engine is gone
	asked     int
	sent      []time.Duration
}

type rateLimitProcess struct {
	*Limiter
	demand  float64 // requests a second
	carry   float64
	waiting int
	used    int
	phase   time.Duration
}

func newRateLimitFleet(text string, demands ...float64) *rateLimitFleet {
	rate, err := ParseRate(text)
	if err != nil {
		panic(err)
	}
	r := rand.New(rand.NewPCG(uint64(len(demands)), 7))
	f := &rateLimitFleet{rate: rate, gone: func(time.Duration) bool { return false }}
	for _, d := range demands {
		p := &rateLimitProcess{Limiter: New(rate, true, r), demand: d, carry: r.Float64(), phase: time.Duration(r.IntN(int(RateLimitRequestInterval)))}
		p.Share(len(demands))
		f.processes = append(f.processes, p)
	}
	return f
}

// many returns n processes with the same demand.
func many(n int, demand float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = demand
	}
	return all
}

// run advances to the given time in steps of a millisecond.
func (f *rateLimitFleet) run(from, until time.Duration) {
	const step = time.Millisecond
	const line = 20 // more requests of a process do not wait
	for now := from; now < until; now += step {
		for _, p := range f.processes {
			p.carry += p.demand * step.Seconds()
			for ; p.carry >= 1; p.carry-- {
				p.Arrive()
				p.waiting = min(p.waiting+1, line)
			}
			for p.waiting > 0 && p.Take(now) {
				p.waiting--
				p.used++
				f.sent = append(f.sent, now)
			}
			if now < p.phase || p.RequestDue(now, p.waiting) > now {
				continue
			}
			a := p.MakeRequest(now, p.waiting)
			f.asked++
			if f.gone(now) {
				p.RequestFailed()
			} else {
				p.ApplyGrant(now, f.ledger.Lease(now, a))
			}
		}
	}
}

// most returns the largest number sent in any window of that length.
func (f *rateLimitFleet) most(window time.Duration) int {
	most, first := 0, 0
	for i, at := range f.sent {
		for f.sent[first] <= at-window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// within counts what was sent in [from, until).
func (f *rateLimitFleet) within(from, until time.Duration) (n int) {
	for _, at := range f.sent {
		if at >= from && at < until {
			n++
		}
	}
	return n
}

func TestAFleetUsesItsRateLimitAndNoMore(t *testing.T) {
	for _, tc := range []struct {
		name      string
		rateLimit string
		demands   []float64
	}{
		{"all want too much", "500/s", many(50, 20)},
		{"one wants all", "500/s", append(many(49, 0), 2000)},
		{"some want much and some little", "500/s", append(many(40, 5), many(10, 200)...)},
		{"one alone", "500/s", many(1, 900)},
		{"more processes than slots", "10/s", many(50, 3)},
		{"very many", "2000/s", many(500, 10)},
		{"few a minute", "120/m", many(3, 5)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newRateLimitFleet(tc.rateLimit, tc.demands...)
			const from, until = 2 * time.Second, 32 * time.Second
			f.run(0, until)
			perSecond := float64(f.rate.Count) / f.rate.Per.Seconds()
			share := float64(f.within(from, until)) / (perSecond * (until - from).Seconds())
			if share < 0.97 || share > 1 {
				t.Errorf("%.1f %% of the rate limit used", 100*share)
			}
			if most, limit := f.most(time.Second), int(perSecond*1.02)+2; f.sent[0] < from && most > limit+int(perSecond/10) {
				t.Errorf("%d in one second, want at most %d", most, limit)
			}
			f.sent = f.sent[f.within(0, from):]
			if most, limit := f.most(time.Second), int(perSecond*1.02)+2; most > limit {
				t.Errorf("%d in one second later on, want at most %d", most, limit)
			}
		})
	}
}

// However many processes want slots all the time, together they send no more requests than the
// ledger allows, use the rate limit, and get equal shares. Slots of processes that stop are soon
// used again.
func TestTheQuestionsOfManyAreBounded(t *testing.T) {
	const n, half, stop, end = 600, 300, 8 * time.Second, 18 * time.Second
	f := newRateLimitFleet("6000/s", many(n, 20)...)
	perSecond := func(from, until time.Duration) float64 {
		asked := f.asked
		f.run(from, until)
		return float64(f.asked-asked) / (until - from).Seconds()
	}
	first := perSecond(0, 2*time.Second)
	var before []int
	for _, p := range f.processes {
		before = append(before, p.used)
	}
	then := perSecond(2*time.Second, stop)
	least, most := 1<<30, 0
	for i, p := range f.processes {
		least, most = min(least, p.used-before[i]), max(most, p.used-before[i])
	}
	for _, p := range f.processes[:half] {
		p.demand, p.waiting = 0, 0
	}
	last := perSecond(stop, end)
	if first > LedgerRequestsPerSecond+n || then > 1.02*LedgerRequestsPerSecond || last > 1.02*LedgerRequestsPerSecond || then < 0.8*LedgerRequestsPerSecond {
		t.Errorf("%.0f, %.0f and %.0f questions a second", first, then, last)
	}
	if least < 45 || most > 75 { // of 59 on average
		t.Errorf("between %d and %d slots of 6 s", least, most)
	}
	for _, from := range []time.Duration{2 * time.Second, stop + 500*time.Millisecond} {
		until := from + 6*time.Second
		if share := float64(f.within(from, until)) / (6000 * 6); share < 0.97 || share > 1.03 { // the 0.2 s of slots of processes that stopped are used later
			t.Errorf("%.1f %% of the rate limit used from %v on", 100*share, from)
		}
	}
	if most := f.most(time.Second); most > 6600 {
		t.Errorf("%d in one second", most)
	}
}

// Many processes with little demand each are served within a rest.
func TestManyBelowTheirRateLimitDoNotWait(t *testing.T) {
	f := newRateLimitFleet("6000/s", many(600, 5)...)
	f.run(0, 10*time.Second)
	waiting := 0
	for _, p := range f.processes {
		waiting += p.waiting
	}
	if n := f.within(2*time.Second, 10*time.Second); n < 8*3000*97/100 || waiting > 300 {
		t.Errorf("%d sent of %d, %d wait", n, 8*3000, waiting)
	}
}

func TestAFleetIsFair(t *testing.T) {
	f := newRateLimitFleet("500/s", append(many(25, 12), many(25, 400)...)...)
	f.run(0, 60*time.Second)
	least, most := f.processes[0].used, 0
	for _, p := range f.processes {
		least, most = min(least, p.used), max(most, p.used)
	}
	if least < 300 || most > 1200 { // 600 on average
		t.Errorf("between %d and %d slots of 60 s", least, most)
	}
}

// While a fleet does not use its whole rate limit, a request takes its slot at once. Hardly any
// waits for a lease, which costs a park and a wake.
func TestBelowTheRateLimitNearlyEverySlotIsAvailable(t *testing.T) {
	for _, tc := range []struct {
		demands []float64 // of 10 000 per second
		most    float64   // share of requests that wait
	}{
		{many(1, 1000), 0.002}, {many(1, 3000), 0.005}, {many(1, 7000), 0.03}, {many(1, 9000), 0.15}, {many(50, 20), 0.01}, {many(50, 100), 0.02},
	} {
		f := newRateLimitFleet("10000/s", tc.demands...)
		waited, all := 0, 0
		for now := time.Duration(0); now < 10*time.Second; now += 100 * time.Microsecond {
			for _, p := range f.processes {
				for p.carry += p.demand * 2e-4 * p.rand.Float64(); p.carry >= 1; p.carry-- {
					p.Arrive()
					if all++; p.waiting > 0 || !p.Take(now) {
						waited++
						p.waiting++
					}
				}
				for p.waiting > 0 && p.Take(now) {
					p.waiting--
				}
				if now >= p.phase && p.RequestDue(now, p.waiting) <= now {
					p.ApplyGrant(now, f.ledger.Lease(now, p.MakeRequest(now, p.waiting)))
				}
			}
		}
		if share := float64(waited) / float64(all); share > tc.most {
			t.Errorf("%d of %.0f/s: %.2f %% of %d requests waited", len(tc.demands), tc.demands[0], 100*share, all)
		}
	}
}

// Below the rate limit hardly any request waits.
func TestAFleetBelowItsRateLimitDoesNotWait(t *testing.T) {
	f := newRateLimitFleet("500/s", many(50, 5)...)
	f.run(0, 20*time.Second)
	waited := 0
	for _, p := range f.processes {
		waited += p.waiting
	}
	if n := f.within(2*time.Second, 20*time.Second); n < 18*250*99/100 || waited > 5 {
		t.Errorf("%d sent of %d, %d wait", n, 18*250, waited)
	}
}

// Without an engine each process uses its share at once; when the engine is back, they share again.
func TestAFleetWithoutItsEngine(t *testing.T) {
	f := newRateLimitFleet("500/s", many(50, 20)...)
	f.gone = func(now time.Duration) bool { return now >= 10*time.Second && now < 20*time.Second }
	f.run(0, 30*time.Second)
	for _, from := range []time.Duration{8 * time.Second, 11 * time.Second, 15 * time.Second, 22 * time.Second} {
		if n := f.within(from, from+2*time.Second); n < 960 || n > 1000 {
			t.Errorf("%d in the two seconds from %v, want nearly 1000", n, from)
		}
	}
	if most := f.most(time.Second); most > 560 {
		t.Errorf("%d in one second", most)
	}
}

// A hanging engine delays nothing: after 100 ms the process uses its own share.
func TestAMissingGrantIsNotWaitedFor(t *testing.T) {
	q := New(Rate{500, time.Second}, true, nil)
	q.Share(5)
	q.MakeRequest(0, 1)
	sent := 0
	for now := time.Millisecond; now <= time.Second; now += time.Millisecond {
		if q.Take(now) {
			if sent++; now < rateLimitGrantTimeout {
				t.Fatalf("sent at %v without a slot", now)
			}
		}
	}
	if sent < 80 || sent > 100 { // 98.5 per second, from 100 ms on
		t.Errorf("%d sent", sent)
	}
}

// Alone: for any arrivals, in any period, at most the rate limit plus the permitted catch-up.
func TestARateLimitAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		rate := Rate{1 + r.Int64N(1000), []time.Duration{time.Second, time.Minute}[r.IntN(2)]}
		q := New(rate, false, nil)
		if q.RequestDue(0, 5) != backoff.Forever {
			t.Fatal("nobody is there to be asked")
		}
		var sent []time.Duration
		now := time.Duration(0)
		for range 500 {
			now += time.Duration(r.ExpFloat64() * float64(q.gap) * r.Float64() * 4)
			at := q.Next(now)
			if q.Take(now) != (at <= now) {
				t.Fatalf("%v: Next says %v at %v", rate, at, now)
			}
			if at <= now {
				sent = append(sent, now)
			}
		}
		for i := range sent {
			for j := i; j < len(sent); j++ {
				if most := float64(sent[j]-sent[i]+rateLimitCatchUp)/float64(q.gap) + 1; float64(j-i+1) > most+1e-6 {
					t.Fatalf("%v: %d within %v", rate, j-i+1, sent[j]-sent[i])
				}
			}
		}
	}
}

func TestARateLimitSlotGivenBack(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		t.Run(fmt.Sprint("fleet ", fleet), func(t *testing.T) {
			q := New(Rate{1, time.Second}, fleet, nil)
			if fleet {
				q.ApplyGrant(time.Second, LeaseGrant{Slots: 1})
				q.hasSlack = false
			}
			now := time.Second
			if !q.Take(now) || q.Take(now) {
				t.Fatal("one slot, not none or two")
			}
			q.GiveBack(now)
			if a := q.MakeRequest(now, 1); fleet && a.Charge != -1 || !fleet && !q.Take(now) {
				t.Errorf("%+v, and no slot", a)
			}
		})
	}
}

// A limiter can be dropped if a new one would grant no slot earlier and nothing is left to report.
func TestARateLimiterIsIdle(t *testing.T) {
	rate := Rate{10, time.Second}
	alone := New(rate, false, nil)
	if !alone.Idle(time.Second) {
		t.Error("a new one")
	}
	alone.Arrive()
	alone.Take(time.Second)
	if alone.Idle(time.Second+alone.gap-1) || !alone.Idle(time.Second+alone.gap) {
		t.Error("before a new one's slot is later")
	}
	for name, use := range map[string]func(q *Limiter){
		"a slot is told":        func(q *Limiter) { q.ApplyGrant(0, LeaseGrant{}); q.Take(time.Second) },
		"a lease is given back": func(q *Limiter) { q.ApplyGrant(time.Second, LeaseGrant{Slots: 1}) },
		"an arrival":            func(q *Limiter) { q.Arrive() },
	} {
		q := New(rate, true, nil)
		use(q)
		if now := 2 * time.Second; q.Idle(now) || q.RequestDue(now, 0) == backoff.Forever {
			t.Errorf("%s: idle before it was asked", name)
		} else if q.MakeRequest(now, 0); !q.Idle(now) {
			t.Errorf("%s: not idle after", name)
		}
	}
}

// A hostile engine cannot grant more slots than the horizon has.
func TestHostileGrants(t *testing.T) {
	q := New(Rate{100, time.Second}, true, nil)
	for range 1000 {
		q.ApplyGrant(0, LeaseGrant{Slots: math.MaxInt >> 8, Ahead: -1 << 50})
		q.ApplyGrant(0, LeaseGrant{Slots: -5, Ahead: backoff.Forever, Rest: backoff.Forever, Reserved: math.MaxInt >> 8})
		q.ApplyGrant(0, LeaseGrant{Slots: 1, Rest: -1 << 50, Reserved: -7})
		q.ApplyGrant(0, LeaseGrant{Rest: RateLimitMaxRest, Reserved: math.MaxInt >> 8})
	}
	if n := q.want(1 << 30); n < 0 || len(q.leases) > maxLeases {
		t.Errorf("wants %d, %d leases", n, len(q.leases))
	}
	if r := q.reserved; r.n > 500 || r.gap < q.gap*98/100 {
		t.Errorf("%+v", r)
	}
	if q.requestAt > RateLimitMaxRest+time.Second {
		t.Errorf("asks again at %v", q.requestAt)
	}
	for _, l := range q.leases {
		if l.n > 11 || l.at < 0 || l.at > RateLimitHorizon {
			t.Errorf("%+v", l)
		}
	}
}
