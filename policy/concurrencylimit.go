package policy

import (
	"math"
	"time"
)

// concurrencyLimiter finds how many requests an upstream bears at once, while there is
// evidence that it does not bear them all. It is not safe for concurrent use.
//
// It has two phases. The slow start after an outage begins with the mean
// concurrency remembered from before and adds one for each request that goes
// well, so it doubles in the time of one response, up to slowStartFactor of what is
// remembered, as long as goodput grows with it. Then, and when overload made
// the limit bind without an outage, it climbs: each round it compares goodput
// and latency with those of the round before and moves by a step.
//
// It ends when nobody had to wait for a while: a limit that nobody reaches is
// only a risk.
type concurrencyLimiter struct {
	bound         bool
	starting      bool    // slow start
	overloaded    bool    // overload bound it, not an outage
	relearning    bool    // of an upstream that came back slower, see restartSlowStart
	noResponseYet bool    // slow start of which no response was heard, see growBlindly
	limit         float64 // >= 1; its whole part counts
	top           float64 // of the slow start

	boundAt             time.Duration
	inFlightBefore      int64         // of those in flight since before a slow start, those that do not count
	extra               int64         // let through in silence, see trickle
	extraAt             time.Duration // the last of these
	unreachedSince      time.Duration // since when nobody waits; Forever: somebody does
	overload            overload      // while not bound
	boundCount          uint64        // how often overload bound it
	awaitsFirstResponse bool          // the first round begins with the first answer to what was sent under the limit
	slowWell            int           // rounds that were slow with no more than what was seen to go well
	baselineShifted     bool          // the upstream became slow, but not by its load: what is usual has changed

	round round // in flight
	last  round // the one before; began 0 and no counts: none
}

// round is what was seen over a stretch of time with one limit.
type round struct {
	began    time.Duration
	took     time.Duration // set at its end
	limit    float64
	good     int
	bad      int
	busy     time.Duration // sum of the latencies of the good ones
	full     bool          // somebody had to wait
	waits    int           // how many had to
	measured bool          // it has ended and says something
}

func (r *round) rate() float64 { return float64(r.good) / r.took.Seconds() }
func (r *round) mean() time.Duration {
	if r.good == 0 {
		return 0
	}
	return r.busy / time.Duration(r.good)
}

const (
	// minConcurrencyLimit is the stated minimum per process: no evidence of overload
	// takes the limit below it. With fifty proxies these are 150 at once.
	// Only a slow start may begin below, with 1.
	minConcurrencyLimit = 3
	// slowStartFactor is how far above the mean concurrency before an outage the
	// slow start goes. An upstream with reserves of any kind bears a burst
	// of that; one without is found out by its goodput. All the clients who
	// waited then come at once, so less makes them wait longer: with five,
	// what gathered in 2 s of patience is worked off in the time of four
	// usual answers per second of it.
	slowStartFactor = 5
	// startUnknown is the begin of a slow start without a memory.
	startUnknown = minConcurrencyLimit

	unreachedTime = time.Second     // nobody waits for so long: the limit ends
	roundTime     = time.Second     // a round takes this at least...
	maxRoundTime  = 3 * time.Second // and this at most, when few requests end
	roundGood     = 20

	growth         = 0.1 // of the limit in a round
	fastGrowth     = 0.5 // the same from the second on while answers take no longer than usual...
	baselineFactor = 1.25
	shrinkage      = 0.8
	maxShrinkage   = 0.5
	headroom       = 1.25 // over Little's law, so that the limit can find out that more goes
	slowTimes      = 2    // latency above this many times the usual is slow

	// Elasticity is d ln(goodput) / d ln(limit). At 1 the upstream takes
	// more and gives more; at 0 more only makes it slower.
	elasticHigh = 0.6
	elasticLow  = 0.4

	slowWellRounds = 3 // slow at a limit that went well before, to be innocent

	minInFlightToBind = 10  // requests at once that overload has at least
	crowded           = 0.2 // who had to wait, of those answered, that say that more comes than is answered
	badShare          = 0.2 // failures in a round that shrink the limit
)

// overload tells an upstream that gets more than it answers from one that is only
// slower than it was: what is in flight grows from window to window. It grows
// as well for the time of one response when answers begin to take longer, so
// the first window that looks overloaded does not count.
type overload struct {
	seen            bool
	sent, responded int64 // since the first window that looked so
}

// grows takes in another window that looks overloaded and says whether more came
// than was answered, by more than chance and by more than a few clients who left.
func (o *overload) grows(sent, answered int64, least float64) bool {
	if !o.seen {
		o.seen = true
		return false
	}
	o.sent += sent
	o.responded += answered
	more, all := float64(o.sent-o.responded), float64(o.sent)
	return float64(answered)+3*math.Sqrt(float64(answered)) < least || more > max(minInFlightToBind, 3*math.Sqrt(all), 0.05*all)
}

// wholeLimit is the limit in requests.
func (l *concurrencyLimiter) wholeLimit() int64 { return int64(l.limit) }

// hasCapacity says whether a permit is free when so many are taken.
func (l *concurrencyLimiter) hasCapacity(taken int64) bool {
	return taken-l.inFlightBefore-l.extra < l.wholeLimit()
}

// start begins a slow start. old of the requests in flight do not count.
func (l *concurrencyLimiter) start(now time.Duration, old int64, u *baseline) {
	*l = concurrencyLimiter{bound: true, starting: true, boundAt: now, inFlightBefore: old, unreachedSince: Forever, boundCount: l.boundCount}
	if u.known() {
		l.limit = max(1, u.concurrency) + u.pending
		l.top = max(minConcurrencyLimit, slowStartFactor*u.concurrency) + u.pending
	} else {
		l.limit, l.top = startUnknown, maxFixed
	}
	l.newRound(now)
}

// restartSlowStart goes on with a slow start, or begins one, that knows no top: what is
// usual has changed, and so many at once are needed for the goodput of before. It
// has no effect while nothing is bound.
func (l *concurrencyLimiter) restartSlowStart(now time.Duration, needed float64) {
	if !l.bound {
		return
	}
	l.starting, l.relearning, l.top = true, true, maxFixed
	l.limit = min(max(l.limit, needed), maxFixed)
	l.last = round{}
	l.newRound(now)
}

// bind begins to climb from what is in flight now.
func (l *concurrencyLimiter) bind(now time.Duration, inFlight int64) {
	*l = concurrencyLimiter{bound: true, overloaded: true, boundAt: now, unreachedSince: Forever, boundCount: l.boundCount + 1}
	l.limit = float64(max(inFlight, minConcurrencyLimit))
	l.newRound(now)
	l.awaitsFirstResponse = true
}

// release ends the limit.
func (l *concurrencyLimiter) release() { *l = concurrencyLimiter{boundCount: l.boundCount} }

func (l *concurrencyLimiter) newRound(now time.Duration) {
	l.round = round{began: now, limit: l.limit}
}

// recordWait notes that somebody has to wait for the limit.
func (l *concurrencyLimiter) recordWait() {
	l.round.full = true
	l.round.waits++
	l.unreachedSince = Forever
}

// mayEnd notes whether the limit is reached, and says whether the limit may end.
func (l *concurrencyLimiter) mayEnd(now time.Duration, reached bool) bool {
	switch {
	case reached:
		l.unreachedSince = Forever
		return false
	case l.unreachedSince == Forever:
		l.unreachedSince = now
	}
	return now >= l.unreachedSince+unreachedTime
}

// nextEvent is when rest has something to say.
func (l *concurrencyLimiter) nextEvent() time.Duration {
	if !l.bound || l.unreachedSince == Forever {
		return Forever
	}
	return l.unreachedSince + unreachedTime
}

// recordRelease notes that an attempt ended which took its place at entered.
func (l *concurrencyLimiter) recordRelease(entered time.Duration) {
	if l.inFlightBefore > 0 && entered < l.boundAt {
		l.inFlightBefore--
	}
}

// trickle lets one request more through when nothing was answered for longer
// than overdue, and says so. Places may have been lost, or be taken by long
// polls; if the upstream has stopped, two of these show it (see silence).
func (l *concurrencyLimiter) trickle(now, answeredAt, due time.Duration, taken int64) bool {
	if now < l.trickleAt(answeredAt, due) {
		return false
	}
	l.extra = max(l.extra, taken-l.inFlightBefore-l.wholeLimit()) + 1
	l.extraAt = now
	return true
}

// trickleAt is when trickle has its way.
func (l *concurrencyLimiter) trickleAt(answeredAt, due time.Duration) time.Duration {
	return max(answeredAt, l.boundAt, l.extraAt) + due
}

// recordEnd takes in an attempt that was sent under this limit.
func (l *concurrencyLimiter) recordEnd(now, entered time.Duration, good bool, u *baseline) {
	if good {
		l.extra = 0
	}
	if entered < l.boundAt || now < l.round.began {
		return
	}
	l.noResponseYet = false
	if l.awaitsFirstResponse {
		l.awaitsFirstResponse = false
		l.round.began = now
		return
	}
	if !good {
		l.round.bad++
		if l.starting {
			l.limit = max(1, l.limit-1)
		}
	} else {
		l.round.good++
		l.round.busy += now - entered
		if l.starting {
			l.limit = min(l.limit+1, l.top)
		}
	}
	if l.starting {
		l.startStep(now, u)
	} else {
		l.climb(now, u)
	}
}

// A slow start grows with the answers to what it lets in. Until the first of them
// it grows with time, so that clients do not wait as long as one response takes: it
// doubles every blindGrowthInterval. Where answers are known to be quick, it ends at its top.
const (
	blindGrowthInterval = 100 * time.Millisecond
	blindGrowthQuick    = time.Second
)

// blindGrowthAt is when the limit doubles next without a response.
func (l *concurrencyLimiter) blindGrowthAt(u *baseline) time.Duration {
	if !l.starting || !l.noResponseYet || l.limit >= maxFixed || l.limit >= l.top && u.known() && u.p90 <= blindGrowthQuick {
		return Forever
	}
	return l.round.began + blindGrowthInterval
}

// growBlindly doubles the limit when no response came for so long.
func (l *concurrencyLimiter) growBlindly(now time.Duration, u *baseline) {
	for now >= l.blindGrowthAt(u) {
		at := l.blindGrowthAt(u)
		l.limit = min(2*l.limit, maxFixed)
		l.newRound(at)
	}
}

// startStep ends the slow start at its top, or when a doubling of the limit
// brought less than a quarter more goodput and made answers slower.
func (l *concurrencyLimiter) startStep(now time.Duration, u *baseline) {
	if l.limit >= l.top {
		l.starting = false
		l.last = round{}
		l.newRound(now)
		return
	}
	r := &l.round
	if r.good < max(int(r.limit), 1) {
		return
	}
	r.took = max(now-r.began, 1)
	if l.last.measured && (l.goodputFlat(u) || l.relearning && l.slowedDown()) {
		l.starting = false
		l.limit = max(minConcurrencyLimit, l.last.limit)
	}
	l.endRound(now)
}

const worthwhile = 1.25 // times the goodput, for twice as many at once

// goodputFlat says whether the last doubling was, as far as goodput tells.
func (l *concurrencyLimiter) goodputFlat(u *baseline) bool {
	const sayingMuch, slower = 8, 1.25
	r := &l.round
	return r.full && l.last.limit >= sayingMuch && r.rate() < worthwhile*l.last.rate() && float64(r.mean()) > slower*float64(l.last.mean())
}

// slowedDown says the same as far as latency tells, which it does with few
// requests too: twice as many at once that each take 2/worthwhile times as long
// bring worthwhile times the goodput (Little's law).
func (l *concurrencyLimiter) slowedDown() bool {
	return worthwhile*float64(l.round.mean()) > 2*float64(l.last.mean())
}

func (l *concurrencyLimiter) endRound(now time.Duration) {
	l.round.measured = true
	l.last = l.round
	l.newRound(now)
}

// delayRound lets the round begin when what was sent under the last one has ended:
// until then goodput is still that of the limit before.
func (l *concurrencyLimiter) delayRound() {
	l.round.began += min(l.last.mean(), maxRoundTime)
}

// climb ends a round when it has lasted, and moves the limit.
func (l *concurrencyLimiter) climb(now time.Duration, u *baseline) {
	r := &l.round
	r.took = now - r.began
	least := max(roundTime, 3*u.mean, min(2*r.mean(), maxRoundTime))
	if r.took < least || r.good+r.bad < roundGood && r.took < max(maxRoundTime, least) {
		return
	}
	l.limit = max(minConcurrencyLimit, l.next(u))
	l.endRound(now)
	l.delayRound()
}

// next is the limit for the next round.
func (l *concurrencyLimiter) next(u *baseline) float64 {
	r := &l.round
	more := r.limit + max(1, r.limit*growth)
	if l.last.full && u.known() && float64(r.mean()) <= baselineFactor*float64(u.mean) {
		more = r.limit + max(1, r.limit*fastGrowth)
	}
	switch {
	case float64(r.bad) >= badShare*float64(r.good+r.bad):
		return r.limit * shrinkage
	case !r.full || l.unreachedSince != Forever:
		return r.limit // nobody wanted more, or nobody does any longer: goodput is what was asked for
	case !u.known() || r.mean() <= slowTimes*u.mean:
		return more
	case float64(r.waits) < crowded*float64(r.good):
		return r.limit
	}
	return l.seek(u, more)
}

// seek moves the limit of an upstream that answers slowly: down as long as
// goodput does not follow, but not below what was seen to go well. If it is slow
// with that few, or if goodput follows the limit down, load is not the reason:
// what is usual has changed, and the limit must not make it worse.
func (l *concurrencyLimiter) seek(u *baseline, more float64) float64 {
	r := &l.round
	well := max(minConcurrencyLimit, u.concurrency)
	if r.limit <= well {
		if l.slowWell++; l.slowWell >= slowWellRounds {
			l.baselineShifted = true
		}
		return well
	}
	e, known := elasticity(&l.last, r)
	switch {
	case !known && !l.overloaded:
		return more // a slow start went before, and it was good so far
	case !known:
		return max(well, r.limit*shrinkage)
	case e < elasticLow:
		// Little's law: what goes well per second, times how long it takes
		// when nothing is wrong, is what the upstream needs in flight.
		return max(well, r.limit*maxShrinkage, min(r.limit*shrinkage, headroom*r.rate()*u.mean.Seconds()))
	case e > elasticHigh:
		l.baselineShifted = r.limit < l.last.limit // a step up is too small to tell
		return more
	}
	return r.limit
}

// elasticity is how much goodput followed the limit from round a to round b;
// not known when the limit did not move.
func elasticity(a, b *round) (float64, bool) {
	if !a.measured || !a.full || a.good == 0 || b.good == 0 {
		return 0, false
	}
	moved := math.Log(b.limit / a.limit)
	if math.Abs(moved) < 0.01 {
		return 0, false
	}
	return math.Log(b.rate()/a.rate()) / moved, true
}
