package ratelimit

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// vendor is an upstream with one token bucket.
type vendor struct {
	rate, capacity, level float64
	at                    time.Duration
	round                 time.Duration // resets are rounded up to a multiple of it
	clock                 time.Duration // resets are times, rounded up to a multiple of it; Date is rounded down
	atEnd                 bool          // headers state what is left when the response is sent
	extra                 float64       // counted for each attempt in addition to the expected cost
}

func (v *vendor) advance(now time.Duration) {
	v.level = min(v.capacity, v.level+v.rate*(now-v.at).Seconds())
	v.at = now
}

// use takes n and reports whether there was enough.
func (v *vendor) use(now time.Duration, n float64) bool {
	v.advance(now)
	if v.level < n {
		return false
	}
	v.level -= n
	return true
}

func (v *vendor) reading(now time.Duration) Reading {
	v.advance(now)
	reset := time.Duration((v.capacity - v.level) / v.rate * float64(time.Second))
	if v.round > 0 {
		reset = (reset + v.round - 1) / v.round * v.round
	}
	if c := v.clock; c > 0 {
		reset = (now+reset+c-1)/c*c - now/c*c
	}
	return Reading{Row: 1, Kind: Tokens, Model: Refilling, Limit: v.capacity, Remaining: math.Floor(v.level), Reset: reset}
}

// event is something that happens at a time.
type event struct {
	at time.Duration
	do func(now time.Duration)
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// world sends jobs through Buckets to a vendor.
type world struct {
	t        *testing.T
	v        *vendor
	q        Buckets
	r        *rand.Rand
	queue    events
	now      time.Duration
	waiting  []Cost
	armed    bool
	sent     int
	rejected int
	used     float64
	slow     time.Duration // part of the latency
	stray    float64       // tokens per second that others use
}

func (w *world) after(d time.Duration, do func(now time.Duration)) {
	heap.Push(&w.queue, event{w.now + d, do})
}

// pump sends what may be sent.
func (w *world) pump() {
	for len(w.waiting) > 0 {
		c := w.waiting[0]
		next := w.q.Next(w.now, c)
		if next > w.now {
			w.arm(next - w.now)
			return
		}
		w.waiting = w.waiting[1:]
		w.send(c)
	}
}

// arm calls pump again later, once.
func (w *world) arm(d time.Duration) {
	if w.armed {
		return
	}
	w.armed = true
	w.after(min(d, 10*time.Millisecond), func(time.Duration) {
		w.armed = false
		w.pump()
	})
}

func (w *world) send(c Cost) {
	s := w.q.Take(w.now, c)
	w.sent++
	n := c.of(Tokens)
	w.after(time.Millisecond+time.Duration(w.r.Int64N(int64(2*time.Millisecond))), func(now time.Duration) {
		ok := w.v.use(now, n+w.v.extra)
		said := w.v.reading(now)
		delay := time.Millisecond
		if ok {
			w.used += n + w.v.extra
			delay += time.Duration(w.r.Int64N(int64(w.slow) + 1))
		}
		w.after(delay, func(now time.Duration) {
			if !ok {
				w.rejected++
				w.q.GiveBack(now, c)
				w.waiting = append(w.waiting, c)
			}
			if w.v.atEnd {
				said = w.v.reading(now)
			}
			w.q.Learn(now, &s, said, !ok)
			w.pump()
		})
	})
}

// play sends rate jobs per second for that long, in bursts. It returns the fraction of the vendor's
// limit that was used, and the fraction of attempts that the vendor rejected.
func (w *world) play(rate float64, long time.Duration) (used, rejected float64) {
	start := w.v.level
	for at := time.Duration(0); at < long; {
		r := rate * 2
		if at%(5*time.Second) >= 2*time.Second {
			r = rate / 3
		}
		at += time.Duration(w.r.ExpFloat64() / r * float64(time.Second))
		c := Cost{Input: 25, Output: int64(10 + w.r.IntN(700))}
		w.after(at, func(time.Duration) {
			w.waiting = append(w.waiting, c)
			w.pump()
		})
	}
	for at := time.Duration(0); w.stray > 0 && at < long; at += 100 * time.Millisecond {
		w.after(at, func(now time.Duration) {
			if n := w.stray / 10; w.v.use(now, n) {
				w.used += n
			}
		})
	}
	for len(w.queue) > 0 {
		e := heap.Pop(&w.queue).(event)
		if e.at > long {
			break
		}
		w.now = e.at
		e.do(e.at)
		for i := range w.q.all[:w.q.n] {
			if b := &w.q.all[i]; b.level < 0 || b.level > b.limit {
				w.t.Fatalf("level %v of %v", b.level, b.limit)
			}
		}
	}
	return w.used / (start + w.v.rate*long.Seconds()), float64(w.rejected) / float64(w.sent)
}

func TestBucketsUseTheLimitAndMeetNo429(t *testing.T) {
	for name, tc := range map[string]struct {
		vendor   vendor
		slow     time.Duration
		stray    float64
		seconds  float64 // the limit is refilled in this time; 0 means 1
		rejected float64 // until the use by others is known
	}{
		"headers at once":         {slow: 0},
		"generations of seconds":  {slow: 3 * time.Second},
		"headers at the end":      {vendor: vendor{atEnd: true}, slow: 3 * time.Second},
		"resets in whole seconds": {vendor: vendor{round: time.Second}},
		"resets are times in seconds, as Anthropic's, and generations take half a minute": {
			vendor: vendor{clock: time.Second, atEnd: true}, seconds: 60, slow: 30 * time.Second},
		"such resets, and headers at once": {
			vendor: vendor{clock: time.Second}, seconds: 60, slow: 30 * time.Second},
		"somebody else uses a third": {stray: 2600, rejected: 0.02},
		"the vendor counts more":     {vendor: vendor{extra: 40}},
		"the vendor counts less":     {vendor: vendor{extra: -25}},
	} {
		t.Run(name, func(t *testing.T) {
			v := tc.vendor
			v.rate, v.capacity, v.level = 8000, 8000*max(1, tc.seconds), 8000
			w := &world{t: t, v: &v, r: rand.New(rand.NewPCG(1, 2)), slow: tc.slow, stray: tc.stray}
			used, rejected := w.play(26, 5*time.Minute)
			t.Logf("used %.3f rejected %.4f of %d", used, rejected, w.sent)
			if used < 0.97 || rejected > max(tc.rejected, 0.01) {
				t.Errorf("%.1f %% used, %.2f %% rejected", 100*used, 100*rejected)
			}
		})
	}
}

// Whatever requests announce and use, and in whatever order they end: what is given back was taken
// before. So a window lets through what the limit has, and what was taken for attempts in flight.
func TestNoMoreIsGivenBackThanWasTaken(t *testing.T) {
	type attempt struct {
		at             time.Duration
		cost           Cost
		used, inFlight float64
	}
	limit := Rate{Count: 1000, Per: time.Minute}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		var q Buckets
		q.Limit(limit, 0)
		var all []attempt
		var running []int
		for now := time.Duration(0); now < 5*time.Minute; now += time.Duration(r.ExpFloat64() * float64(time.Second)) {
			if c := (Cost{Input: int64(r.IntN(100)), Output: int64(r.ExpFloat64() * 900)}).AtMost(limit.Count); q.Ready(now, c) {
				a := attempt{at: now, cost: c, used: c.of(Tokens)}
				for _, i := range running {
					a.inFlight += all[i].cost.of(Tokens)
				}
				q.Take(now, c)
				running = append(running, len(all))
				all = append(all, a)
			}
			if len(running) == 0 || r.IntN(3) == 0 {
				continue
			}
			n := r.IntN(len(running))
			a := &all[running[n]]
			running = append(running[:n], running[n+1:]...)
			if r.IntN(4) == 0 {
				q.GiveBack(now, a.cost)
				a.used = 0
				continue
			}
			used := Cost{Input: int64(r.Float64() * float64(a.cost.Input)), Output: int64(r.Float64() * float64(a.cost.Output))}
			q.Settle(now, a.cost, Estimate{}, used)
			a.used = used.of(Tokens)
		}
		for i := range all {
			most, sum := float64(limit.Count)+all[i].inFlight, 0.0
			for _, b := range all[i:] {
				if sum += b.used; sum > most+limit.PerSecond()*(b.at-all[i].at).Seconds()+1e-6 {
					t.Fatalf("seed %d: %v used from %v to %v", seed, sum, all[i].at, b.at)
				}
			}
		}
	}
}

// exhausted is a limit of which nothing is left for a month.
var exhausted = Reading{Row: 1, Kind: Requests, Model: Windowed, Limit: 1, Remaining: 0, Reset: 31 * 24 * time.Hour}

// Whatever a response says, an attempt is sent once in Probe.
func TestALearnedLimitIsProbed(t *testing.T) {
	for name, said := range map[string]Reading{
		"windowed":  exhausted,
		"refilling": {Row: 1, Kind: Tokens, Model: Refilling, Limit: 1, Remaining: 0, Reset: 31 * 24 * time.Hour},
	} {
		q := Buckets{Probe: time.Minute}
		s := q.Take(time.Second, Cost{Output: 5})
		q.Learn(2*time.Second, &s, said, false)
		for now := 2 * time.Second; now < 10*time.Minute; {
			next := q.Next(now, Cost{Output: 5})
			if next != now+time.Minute {
				t.Fatalf("%s: at %v the next attempt is at %v", name, now, next)
			}
			if w := q.Wait(now, Cost{Output: 5}, 1); w != time.Minute {
				t.Errorf("%s: at %v the wait is %v", name, now, w)
			}
			now = next
			s = q.Take(now, Cost{Output: 5})
			q.Learn(now, &s, said, now > 5*time.Minute)
		}
	}
}

// However slowly headers say that a bucket is refilled, it is full after the longest reset.
func TestABucketIsFullAfterTheLongestReset(t *testing.T) {
	var q Buckets
	now := time.Second
	s := q.Take(now, Cost{})
	q.Learn(now, &s, Reading{Row: 1, Kind: Tokens, Model: Refilling, Limit: 1, Remaining: math.Nextafter(1, 0), Reset: maxReset}, false)
	for range 5000 { // together more than a Duration can hold
		q.Take(now, Cost{Output: 1})
	}
	if next := q.Next(now, Cost{Output: 1}); next != now+maxReset {
		t.Errorf("the next attempt is at %v, want %v", next, now+maxReset)
	}
	if now += maxReset; !q.Ready(now, Cost{Output: 1}) {
		t.Errorf("it is not full; the next attempt is at %v", q.Next(now, Cost{Output: 1}))
	}
}

// A reset of 0 means that a limit is replenished by now: nobody waits for it, whatever else its
// headers say, whatever was known before, and whether the response was a rejection.
func TestALimitThatIsReplenishedByNowStopsNobody(t *testing.T) {
	const now = time.Minute
	for name, tc := range map[string]struct {
		model    Model
		left     float64
		earlier  *Reading // of an attempt before
		since    int      // attempts sent after the one that is answered
		rejected bool
		within   time.Duration
	}{
		"a window, nothing left":               {model: Windowed},
		"a window, some left":                  {model: Windowed, left: 3},
		"a window that was used up before":     {model: Windowed, earlier: &Reading{Limit: 10, Reset: time.Hour}},
		"a window that was half full before":   {model: Windowed, earlier: &Reading{Limit: 10, Remaining: 5, Reset: time.Minute}},
		"a window, and others were sent since": {model: Windowed, since: 4},
		"a window, by a rejection":             {model: Windowed, rejected: true, earlier: &Reading{Limit: 10, Reset: time.Hour}},
		"a bucket, nothing left":               {model: Refilling, within: time.Second},
		"a bucket, and others were sent since": {model: Refilling, since: 4, within: 2 * time.Second},
	} {
		q := Buckets{Probe: time.Minute}
		if e := tc.earlier; e != nil {
			e.Row, e.Model = 1, tc.model
			s := q.Take(now-time.Second, Cost{})
			q.Learn(now-time.Second, &s, *e, false)
		}
		s := q.Take(now, Cost{})
		for range tc.since {
			q.Take(now, Cost{})
		}
		if tc.rejected {
			q.GiveBack(now, Cost{})
		}
		q.Learn(now, &s, Reading{Row: 1, Model: tc.model, Limit: 10, Remaining: tc.left}, tc.rejected)
		if at := q.Next(now, Cost{}); at > now+tc.within {
			t.Errorf("%s: the next attempt is %v later", name, at-now)
		}
		if wait := q.Wait(now, Cost{}, 1); wait > tc.within {
			t.Errorf("%s: the estimated wait is %v", name, wait)
		}
	}
}

// A late response does not renew a window that a newer one said is used up.
func TestALateResponseDoesNotRenewAWindow(t *testing.T) {
	var q Buckets
	first, second := q.Take(0, Cost{}), q.Take(time.Millisecond, Cost{})
	q.Learn(time.Second, &second, Reading{Row: 1, Model: Windowed, Limit: 10, Reset: time.Minute}, false)
	q.Learn(time.Second, &first, Reading{Row: 1, Model: Windowed, Limit: 10}, false)
	if q.Ready(time.Second, Cost{}) {
		t.Error("the window is renewed")
	}
}

// A limit that the response to a probe does not confirm is forgotten with the next one.
func TestALearnedLimitIsForgotten(t *testing.T) {
	q := Buckets{Probe: time.Minute}
	s := q.Take(0, Cost{})
	q.Learn(0, &s, exhausted, false)
	q.Take(time.Minute, Cost{})
	if q.Ready(2*time.Minute-1, Cost{}) || !q.Ready(2*time.Minute, Cost{}) {
		t.Error("the second probe is not a minute after the first")
	}
	q.Take(2*time.Minute, Cost{})
	if q.Known() || !q.Ready(2*time.Minute, Cost{}) {
		t.Error("the limit is still known")
	}
}

// The engine says what is left of a configured limit, and nothing else of it.
func TestAConfiguredLimitIsNotImported(t *testing.T) {
	var q Buckets
	q.Limit(Rate{Count: 1000, Per: time.Minute}, 0)
	q.Import(0, &Balance{})
	if left, limit, ok := q.Level(0, fixedRow); !ok || left != 1000 || limit != 1000 {
		t.Errorf("%v of %v (%v), want 1000 of 1000", left, limit, ok)
	}
	q.Import(0, &Balance{Buckets: []BucketState{{Row: fixedRow, Limit: 1e12, Level: 1e11}}})
	if left, limit, _ := q.Level(0, fixedRow); left != 1000 || limit != 1000 {
		t.Errorf("%v of %v, want 1000 of 1000", left, limit)
	}
}
