package breaker

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// window is the one number that decides who may be sent: how many attempts may be in flight,
// as TCP's congestion window. Its phases say what moves it:
//
//	open   it does not bind, since there is no reason to
//	doubt  it is 0, since no response comes; an attempt passes now and then, and the next
//	       response opens it again
//	shut   it is 0, since the upstream fails; one probe at a time passes, see pace
//	blind  connections to the upstream work again: it doubles by time until the first good response
//	start  the upstream works again: it doubles in the time of one response, until latency
//	       grows with it
//	seek   it moves by steps towards the most goodput
//
// An attempt holds its place in the window until it ends, or until it is passed: one that was
// sent well after it was answered. Then it is not the load of the upstream that delays it, but
// its URL, a client that uploads, or a lost connection. This is TCP's RACK (RFC 8985).
type window struct {
	phase  phase
	size   float64       // >= 1 from blind on; its integer part applies
	top    float64       // the end of start
	began  time.Duration // when the phase began; seek after start keeps that of start
	outage time.Duration // when the first slow start after the outage began, until 5 s after the start before seek; 0: there was none
	proof  time.Duration // when the request was sent whose response ended the outage; 0: a connection did

	passed  time.Duration // attempts sent until then hold no place
	uploads int64         // incomplete requests that it does not limit: in flight when it began to bind

	extraAt  time.Duration // when an attempt may pass beside it
	waitedAt time.Duration // when a request last had to wait for it; it ends a second later, since then it is only a risk

	round, last round // of start and seek; the zero value of last: none
	bound       uint64
}

type phase uint8

const (
	open phase = iota
	doubt
	shut
	blind
	start
	seek
)

// round holds the measurements of a period with one size.
type round struct {
	began, took time.Duration // took is set at its end
	size        float64
	good        latency.Sums // latencies of good responses
	squares     float64      // sum of the squares of these, in seconds
	bad         int          // attempts that failed
}

func (r *round) rate() float64 { return r.good.Total / r.took.Seconds() }
func (r *round) ended() int    { return int(r.good.Total) + r.bad }

// add counts a good response.
func (r *round) add(took time.Duration) {
	r.good.Add(took)
	r.squares += took.Seconds() * took.Seconds()
}

// holding returns how long the attempts in flight hold their places, a mean in which each counts for as
// long as it does. So many quick responses, as from a cache, do not hide a few slow ones that fill the
// window.
func (r *round) holding() time.Duration {
	return time.Duration(r.squares / max(r.good.Sum.Seconds(), 1e-9) * float64(time.Second))
}

const (
	// minWindow is the documented minimum per process: latency never lowers the window below
	// it. With fifty proxies that is 150 in flight. Only start may begin lower, with 1.
	minWindow = 3
	// startFactor is how far start goes above the mean concurrency before an outage. An
	// upstream with spare capacity sustains such a burst; one without shows it by its
	// goodput. With five, the queue of a 2 s outage drains in half a second if latency stays
	// the same.
	startFactor = 5
	// blindEvery is the time in which start doubles before the first response. So nobody waits
	// as long as one response takes. Where responses are known to come within a second, it
	// adds top in each second from there: an upstream that responds as quickly as before
	// never gets more than top, and one that has become slower gets all that wait.
	blindEvery = 50 * time.Millisecond
	// A round of seek lasts for latency.FoldEvery and for two of its latencies, or up to maxRoundTime
	// until many attempts have ended.
	maxRoundTime = 3 * time.Second

	minGain   = 1.25 // latency above this factor of that before stops start, and a smaller growth ends it: chance alone moves a round of twenty by less
	growth    = 0.1  // share of the size added in a round of seek: it doubles in seven
	shrinkage = 0.8  // of the size in a round that was slow or failed: it halves in three
	slowTimes = 2    // latency above this factor of the usual is slow: all of a queue as long as the work itself

	// Elasticity is d ln(goodput) / d ln(size). At 1, more concurrency means more goodput; at
	// 0, it only means more latency. Without it, clients of an upstream that comes back three
	// times slower fail (sim: TestASlowerUpstreamFailsNobody).
	elastic = 0.5

	badShare = 0.2 // of failures in a round that shrinks the window: more than one faulty endpoint of ten
)

// recovering reports whether the state is slow start.
func (w *window) recovering() bool { return w.outage != 0 && w.phase != shut }

// binds reports whether the window matters, limits whether its size does.
func (w *window) binds() bool  { return w.phase != open }
func (w *window) limits() bool { return w.phase >= blind }

// places returns the number of attempts that hold a place.
func (w *window) places(c *counters) int64 { return c.awaiting() - c.older(w.passed) }

// full reports whether no place is free.
func (w *window) full(c *counters) bool { return w.places(c) >= int64(w.size) }

// uploadsFull reports whether no further incomplete request may be sent: half of the size,
// beside those that were in flight before. So slow uploads do not delay other requests, and
// the upstream is not flooded if all of them are complete at once.
func (w *window) uploadsFull(c *counters) bool {
	return c.sending.Load() >= w.uploads+half(int64(w.size))
}

// half returns half of a limit, rounded up: its share for incomplete requests.
func half(limit int64) int64 { return (limit + 1) / 2 }

// enter begins a phase at now. What is in flight holds no place any more: it was sent under
// other conditions, and after an outage nobody waits for most of it.
func (w *window) enter(p phase, now time.Duration, c *counters) {
	c.begin(now)
	*w = window{phase: p, began: now, passed: now, uploads: c.sending.Load(), waitedAt: now, extraAt: now, bound: w.bound, outage: w.outage, proof: w.proof}
	if p == open {
		w.outage, w.proof = 0, 0
	}
	w.round = round{began: now}
}

// begin starts the growth of the window. Until it is proven by a response it grows from 1.
func (w *window) begin(now, proof time.Duration, c *counters, u *latency.Baseline) {
	w.enter(blind, now, c)
	w.extraAt = now + overdue(u)
	w.size, w.top = 1, maxFixed
	if w.outage == 0 {
		w.outage, w.proof = max(now, 1), proof
	}
	if u.Known() {
		w.top = max(minWindow, startFactor*u.Concurrency)
	}
	if proof > 0 {
		w.prove(now, c, u)
	}
}

// prove lets the window grow from the concurrency before the outage.
func (w *window) prove(now time.Duration, c *counters, u *latency.Baseline) {
	w.phase = start
	w.size = max(w.size, u.Concurrency)
	w.newRound(now, c)
}

// bind starts seek from the attempts in flight now, which keep their places.
func (w *window) bind(now time.Duration, size int64, c *counters, u *latency.Baseline) {
	w.enter(seek, now, c)
	w.extraAt = now + overdue(u)
	w.passed = 0
	w.size = float64(max(size, minWindow))
	w.bound++
	w.newRound(now, c)
}

// regrow continues or begins start without a top from at least size.
func (w *window) regrow(now time.Duration, size float64, c *counters) {
	if w.phase != blind {
		w.phase = start
	}
	w.top = maxFixed
	w.size = min(max(w.size, size, minWindow), maxFixed)
	w.last = round{}
	w.newRound(now, c)
}

func (w *window) newRound(now time.Duration, c *counters) {
	c.begin(now)
	w.round = round{began: now, size: w.size}
}

// pass takes the places of older attempts when one sent at sent was answered. They are at
// least as old as a request that is overdue, by what is usual and by what was lately. Those that were in
// flight when the window began to bind may be slow for the same reason, so they are given longer.
func (w *window) pass(sent, now time.Duration, u *latency.Baseline) {
	least := 2 * w.due(u)
	if w.passed < w.began {
		least = max(least, downAfter(u))
	}
	if until := min(sent, now-least); until >= w.began {
		w.passed = max(w.passed, until)
	}
}

// due returns when a response is overdue, by what is usual and by what was lately.
func (w *window) due(u *latency.Baseline) time.Duration {
	return max(overdue(u), overdueP90s*max(w.round.holding(), w.last.holding()))
}

// blindAt returns when the window grows next without a response, or Forever.
func (w *window) blindAt(c *counters, u *latency.Baseline) time.Duration {
	switch {
	case w.phase != blind || w.size >= maxFixed:
		return backoff.Forever
	case !w.overTop(u):
		return w.round.began + blindEvery
	case w.full(c):
		return w.round.began + latency.FoldEvery
	}
	return backoff.Forever
}

// overTop reports whether a quick upstream should have responded at this size.
func (w *window) overTop(u *latency.Baseline) bool {
	return w.size >= w.top && u.Known() && u.P90 <= latency.FoldEvery
}

// growBlindly grows the window for each interval without a response.
func (w *window) growBlindly(now time.Duration, c *counters, u *latency.Baseline) {
	for at := w.blindAt(c, u); now >= at; at = w.blindAt(c, u) {
		if w.overTop(u) {
			w.size = min(w.size+w.top, maxFixed)
			w.newRound(now, c)
			return
		}
		w.size = min(2*w.size, maxFixed)
		w.round = round{began: at, size: w.size}
	}
}

// ended moves the window by the end of an attempt that was sent in it.
func (w *window) ended(sent, now time.Duration, good bool, c *counters, u *latency.Baseline) {
	r := &w.round
	switch {
	case sent < w.began && w.phase == start && w.outage == 0 && w.last.began == 0 && good: // sent when fewer were in flight
		w.last.size = r.size
		w.last.add(now - sent)
		return
	case sent < w.began || now < r.began:
		return
	}
	if w.phase == seek && w.last.began == 0 && r.ended() == 0 && r.began < now {
		r.began = now // the first round of all begins with the first response under its size
		return
	}
	if good {
		r.add(now - sent)
	} else {
		r.bad++
	}
	if w.phase < seek {
		w.grow(now, now-sent, good, c, u)
	} else {
		w.step(now, c, u)
	}
}

// grow adds one for each good response. Without a top it must not have taken much longer than those before,
// and the size at most doubles until most of what was in flight before has ended: so the responses that
// would show overload are seen before the next doubling. Start ends at its top, or if goodput did not follow the size.
func (w *window) grow(now, took time.Duration, good bool, c *counters, u *latency.Baseline) {
	r := &w.round
	if !good {
		w.size = max(1, w.size-1)
		return
	}
	usual, most := r.holding(), w.top
	if w.last.good.Total > 0 {
		usual = w.last.holding()
	}
	if most >= maxFixed {
		most = 2 * r.size
	}
	if w.top < maxFixed || float64(took) <= minGain*float64(usual) && 2*float64(w.places(c)+1) >= w.size {
		w.size = max(w.size, min(w.size+1, most))
	}
	before := c.older(r.began) - c.older(w.passed)
	if float64(before) > max(1, r.size/4) || r.good.Total < math.Floor(r.size) {
		return
	}
	e, is := elasticity(&w.last, r)
	switch {
	case w.size >= w.top && u.Known() && slower(u, &r.good, 0.5, recoverySlowdown):
		u.Relearn(&r.good)
		w.regrow(now, w.size, c)
		return
	case w.size >= w.top:
		w.phase, w.last = seek, round{}
		w.newRound(now, c)
		return
	case is && e < 0, w.top >= maxFixed && (is && e < elastic || w.size < minGain*r.size), w.last.good.Total > 0 && float64(r.bad) >= badShare*float64(r.ended()):
		w.phase = seek
		w.size = max(minWindow, r.size)
	}
	w.endRound(now, c)
}

func (w *window) endRound(now time.Duration, c *counters) {
	w.round.took = max(now-w.round.began, 1)
	w.last = w.round
	w.newRound(now, c)
}

// step ends a round of seek that has lasted long enough, and moves the size.
func (w *window) step(now time.Duration, c *counters, u *latency.Baseline) {
	r := &w.round
	least := max(latency.FoldEvery, min(2*r.good.Mean(), maxRoundTime))
	r.took = now - r.began
	if r.took < least || r.ended() < many && r.took < maxRoundTime {
		return
	}
	size, shifted := w.next(u)
	if shifted && r.good.Total >= latency.KnownSamples {
		u.Relearn(&r.good)
		w.regrow(now, size, c)
		return
	}
	w.size = max(minWindow, size)
	w.endRound(now, c)
	w.round.began += min(w.last.good.Mean(), maxRoundTime) // until then goodput is still that of the previous size
}

// next returns the size of the next round, and whether load is not the reason for the latencies.
func (w *window) next(u *latency.Baseline) (size float64, shifted bool) {
	r, mean := &w.round, w.round.good.Mean()
	more := r.size + max(1, r.size*growth)
	switch {
	case float64(r.bad) >= badShare*float64(r.ended()):
		return r.size * shrinkage, false
	case w.waitedAt <= r.began:
		return r.size, false // goodput equals the load
	case !u.Known() || mean <= slowTimes*u.Mean():
		return more, false
	}
	return w.seek(u, more)
}

// seek moves the size before a slow upstream: down as long as goodput does not follow, but not
// below the usual concurrency. If responses are slow even there, or goodput follows the size
// down, load is not the reason. Then the window goes back to the size of the round before, and what is
// usual is learnt anew.
func (w *window) seek(u *latency.Baseline, more float64) (size float64, shifted bool) {
	r := &w.round
	usual := max(minWindow, u.Concurrency)
	if r.size <= usual {
		return usual, true
	}
	e, is := elasticity(&w.last, r)
	switch up := r.rate() > w.last.rate(); {
	case !is || e < elastic:
		return max(usual, r.size*shrinkage), false
	case r.size < w.last.size && !up:
		return w.last.size, true
	}
	return more, false
}

// elasticity returns how much goodput followed the size from round a to round b. It asks latency alone,
// which also works with few requests: if the concurrency doubles and each attempt holds its place twice as
// long, goodput stays the same (Little's law). It returns false if a round lacks data or the size did not
// move.
func elasticity(a, b *round) (float64, bool) {
	if a.good.Total == 0 || b.good.Total == 0 {
		return 0, false
	}
	moved := math.Log(b.size / a.size)
	if math.Abs(moved) < 0.01 {
		return 0, false
	}
	return 1 - math.Log(float64(b.holding())/float64(a.holding()))/moved, true
}
