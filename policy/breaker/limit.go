package breaker

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// limits is the number of permits: the fixed limit of the options, and the concurrency
// limit while it binds.
type limits struct {
	concurrencyLimiter
	options *Options
}

// limited reports whether the permits are limited at all.
func (l *limits) limited() bool {
	return l.bound || l.options.ConcurrencyLimit == ConcurrencyLimitFixed
}

// allows reports whether the limits leave a permit free for a request, complete or not. The
// concurrency limit counts requests that the upstream can answer. Those that are still sent
// are limited by a number of their own. So slow uploads do not delay other requests, and
// the upstream is not flooded if all of them are complete at once.
func (l *limits) allows(c *counters, whole bool) bool {
	return !l.atFixed(c, whole) &&
		(!l.bound || l.hasCapacity(c.awaitingResponse()) && (whole || c.sending.Load() < l.unfinishedLimit()))
}

// atFixed reports whether a fixed limit is reached. Whoever sets a number means attempts that
// somebody waits for, as other proxies count them, and the circuit breaker protects an
// upstream that stopped. Without one only the limit does, so abandoned attempts count then.
// Incomplete requests take at most half of it, so that slow uploads cannot hold all
// permits. See docs/decisions/0036-fixed-limit.md.
func (l *limits) atFixed(c *counters, whole bool) bool {
	limit := int64(l.options.FixedLimit)
	switch {
	case l.options.ConcurrencyLimit != ConcurrencyLimitFixed:
		return false
	case !whole && c.sending.Load() >= half(limit):
		return true
	case l.options.NoBreaker:
		return c.inFlight() >= limit
	}
	return c.awaited() >= limit
}

// mayBind reports whether evidence of overload can make a limit bind.
func (l *limits) mayBind() bool {
	return l.options.ConcurrencyLimit == ConcurrencyLimitAdaptive && !l.bound
}

// concurrencyLimiter finds how many concurrent requests an upstream sustains, while there
// is evidence of overload. It is not safe for concurrent use.
//
// It has two phases. The slow start after an outage begins with the mean concurrency from
// before the outage. It adds one for each success, so it doubles in the time of one
// response, up to slowStartFactor times that concurrency, as long as goodput grows with it.
// After it, or if overload binds the limit without an outage, the limiter climbs. Each
// round it compares goodput and latency with those of the previous round and moves the
// limit by a step.
//
// The limit ends when no request had to wait for a while: a limit that is not reached is
// only a risk.
type concurrencyLimiter struct {
	bound         bool
	starting      bool    // in slow start
	overloaded    bool    // bound by overload, not by an outage
	noResponseYet bool    // slow start without any response yet, see growBlindly
	limit         float64 // >= 1; its integer part applies
	top           float64 // the end of the slow start

	boundAt             time.Duration
	extra               int64         // admitted above the limit without responses, see trickle
	extraAt             time.Duration // when the last of these was admitted
	unreachedSince      time.Duration // since when no request waits; Forever: one does
	unfinished          int64         // incomplete requests that it does not limit, see unfinishedLimit
	overload            overload      // while not bound
	boundCount          uint64        // how often overload bound it
	awaitsFirstResponse bool          // the first round begins with the first response under the limit
	slowRounds          int           // rounds that were slow at no more than the sustained concurrency
	baselineShifted     bool          // the upstream became slower, but not by its load: the baseline has changed

	round round // the current round
	last  round // the previous round; the zero value: none
}

// round holds the measurements of a period with one limit.
type round struct {
	began    time.Duration
	took     time.Duration // set at the end
	limit    float64
	good     int
	bad      int
	badSent  int           // bad ones that were sent in this round
	busy     time.Duration // sum of the latencies of the good ones
	full     bool          // some request had to wait
	waits    int           // how many had to wait
	measured bool          // it has ended and its figures are usable
}

func (r *round) rate() float64 { return float64(r.good) / r.took.Seconds() }
func (r *round) mean() time.Duration {
	if r.good == 0 {
		return 0
	}
	return r.busy / time.Duration(r.good)
}

// fails reports whether the requests sent in the round fail, even if all in flight succeed.
func (r *round) fails() bool {
	return float64(r.badSent) >= badShare*(float64(r.badSent+r.good)+r.limit)
}

const (
	// minConcurrencyLimit is the documented minimum per process: evidence of overload never
	// lowers the limit below it. With fifty proxies that is 150 in flight. Only a slow
	// start may begin lower, with 1.
	minConcurrencyLimit = 3
	// slowStartFactor is how far the slow start goes above the mean concurrency before an
	// outage. An upstream with spare capacity sustains such a burst; one without shows it
	// by its goodput. All queued clients are sent at once, so a lower factor makes them
	// wait longer. With five, the queue of a 2 s outage drains in half a second if latency
	// stays the same.
	slowStartFactor = 5
	// startUnknown is the initial limit of a slow start without a baseline.
	startUnknown = minConcurrencyLimit

	unreachedTime = time.Second     // the limit ends when no request has waited for this long
	roundTime     = time.Second     // the minimum duration of a round...
	maxRoundTime  = 3 * time.Second // ...and its maximum, if few requests end, see climb
	roundGood     = 20              // requests that must end before maxRoundTime ends a round

	growth         = 0.1  // share of the limit added in a round
	fastGrowth     = 0.5  // the same from the second round on while latency is usual...
	baselineFactor = 1.25 // ...that is, up to this factor
	shrinkage      = 0.8
	maxShrinkage   = 0.5
	headroom       = 1.25 // above Little's law, so that the limit can detect spare capacity
	slowTimes      = 2    // latency above this factor of the usual is slow

	// Elasticity is d ln(goodput) / d ln(limit). At 1, more concurrency means more goodput;
	// at 0, it only means more latency.
	elasticHigh = 0.6
	elasticLow  = 0.4

	maxSlowRounds = 3 // slow rounds at a sustained limit, after which load is not the reason

	minInFlightToBind = 10  // the minimum concurrency of an overload
	waitShare         = 0.2 // share of waits among responses that shows that load exceeds capacity
	badShare          = 0.2 // failures in a round that shrink the limit
)

// overload distinguishes an upstream that gets more requests than it answers from one that
// only became slower: its requests in flight grow from window to window. They also grow for
// the time of one response when latency rises, so the first window that looks overloaded
// does not count.
type overload struct {
	seen            bool
	sent, responded int64 // since the first such window
}

// grows adds another window that looks overloaded. It reports whether more requests were
// sent than answered, by more than chance and by more than a few clients who left, or
// whether fewer than least were answered.
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

// wholeLimit returns the limit in requests.
func (l *concurrencyLimiter) wholeLimit() int64 { return int64(l.limit) }

// hasCapacity reports whether a permit is free when taken are in use.
func (l *concurrencyLimiter) hasCapacity(taken int64) bool {
	return taken-l.extra < l.wholeLimit()
}

// half returns half of a limit, rounded up: its share for incomplete requests.
func half(limit int64) int64 { return (limit + 1) / 2 }

// unfinishedLimit returns how many incomplete requests may be in flight: half of the limit,
// beside those that were in flight when it began to bind, as long as they are. The upstream
// has sustained these.
func (l *concurrencyLimiter) unfinishedLimit() int64 { return l.unfinished + half(l.wholeLimit()) }

// start begins a slow start.
func (l *concurrencyLimiter) start(now time.Duration, u *latency.Baseline) {
	*l = concurrencyLimiter{bound: true, starting: true, boundAt: now, unreachedSince: backoff.Forever, boundCount: l.boundCount}
	if u.Known() {
		l.limit = max(1, u.Concurrency) + u.Pending
		l.top = max(minConcurrencyLimit, slowStartFactor*u.Concurrency) + u.Pending
	} else {
		l.limit, l.top = startUnknown, maxFixed
	}
	l.newRound(now)
}

// restartSlowStart continues or begins a slow start without a top, because the baseline has
// changed. needed is the concurrency that sustains the previous goodput. It has no effect
// while no limit binds.
func (l *concurrencyLimiter) restartSlowStart(now time.Duration, needed float64) {
	if !l.bound {
		return
	}
	l.starting, l.top = true, maxFixed
	l.limit = min(max(l.limit, needed), maxFixed)
	l.last = round{}
	l.newRound(now)
}

// bind starts climbing from the requests in flight now.
func (l *concurrencyLimiter) bind(now time.Duration, inFlight int64) {
	*l = concurrencyLimiter{bound: true, overloaded: true, boundAt: now, unreachedSince: backoff.Forever, boundCount: l.boundCount + 1}
	l.limit = float64(max(inFlight, minConcurrencyLimit))
	l.newRound(now)
	l.awaitsFirstResponse = true
}

// release ends the limit.
func (l *concurrencyLimiter) release() { *l = concurrencyLimiter{boundCount: l.boundCount} }

func (l *concurrencyLimiter) newRound(now time.Duration) {
	l.round = round{began: now, limit: l.limit}
}

// recordWait records that a request has to wait for the limit.
func (l *concurrencyLimiter) recordWait() {
	l.round.full = true
	l.round.waits++
	l.unreachedSince = backoff.Forever
}

// mayEnd records whether the limit is reached, and reports whether the limit may end.
func (l *concurrencyLimiter) mayEnd(now time.Duration, reached bool) bool {
	switch {
	case reached:
		l.unreachedSince = backoff.Forever
		return false
	case l.unreachedSince == backoff.Forever:
		l.unreachedSince = now
	}
	return now >= l.unreachedSince+unreachedTime
}

// nextEvent returns when mayEnd can first return true, or Forever.
func (l *concurrencyLimiter) nextEvent() time.Duration {
	if !l.bound || l.unreachedSince == backoff.Forever {
		return backoff.Forever
	}
	return l.unreachedSince + unreachedTime
}

// trickle admits one more request if there was no response for due, and reports whether it
// did. Permits may have been lost, or be taken by long polls or slow uploads. If the
// upstream has stopped, two such requests show it (see silence). awaiting and sending are
// the complete and incomplete requests in flight.
func (l *concurrencyLimiter) trickle(now, answeredAt, due time.Duration, awaiting, sending int64) bool {
	if now < l.trickleAt(answeredAt, due) {
		return false
	}
	if l.hasCapacity(awaiting) { // an incomplete request waits
		l.unfinished = max(l.unfinished, sending-half(l.wholeLimit())+1)
	} else {
		l.extra = max(l.extra, awaiting-l.wholeLimit()) + 1
	}
	l.extraAt = now
	return true
}

// trickleAt returns when trickle admits the next request.
func (l *concurrencyLimiter) trickleAt(answeredAt, due time.Duration) time.Duration {
	return max(answeredAt, l.boundAt, l.extraAt) + due
}

// recordEnd records the end of an attempt that was sent under this limit.
func (l *concurrencyLimiter) recordEnd(now, entered time.Duration, good bool, u *latency.Baseline) {
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
		if entered >= l.round.began {
			l.round.badSent++
		}
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
		l.startStep(now)
	} else {
		l.climb(now, u)
	}
}

// A slow start grows with the responses to the requests it admits. Until the first response
// it grows with time, so that clients do not wait as long as one response takes: it doubles
// every blindGrowthInterval. If responses are known to be fast, this growth ends at top.
const (
	blindGrowthInterval = 100 * time.Millisecond
	blindGrowthQuick    = time.Second
)

// blindGrowthAt returns when the limit doubles next without a response, or Forever.
func (l *concurrencyLimiter) blindGrowthAt(u *latency.Baseline) time.Duration {
	if !l.starting || !l.noResponseYet || l.limit >= maxFixed || l.limit >= l.top && u.Known() && u.P90 <= blindGrowthQuick {
		return backoff.Forever
	}
	return l.round.began + blindGrowthInterval
}

// growBlindly doubles the limit for each interval without a response.
func (l *concurrencyLimiter) growBlindly(now time.Duration, u *latency.Baseline) {
	for now >= l.blindGrowthAt(u) {
		at := l.blindGrowthAt(u)
		l.limit = min(2*l.limit, maxFixed)
		l.newRound(at)
	}
}

// startStep ends the slow start at its top, or if a doubling of the limit brought too little
// goodput.
func (l *concurrencyLimiter) startStep(now time.Duration) {
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
	if l.last.measured && l.slowedDown() {
		l.starting = false
		l.limit = max(minConcurrencyLimit, l.last.limit)
	}
	l.endRound(now)
}

const minGoodputGain = 1.25 // times the goodput, for twice the concurrency

// slowedDown reports whether goodput grew by less than minGoodputGain in the last doubling. It
// asks latency alone, which also works with few requests: if the concurrency doubles and each
// response takes 2/minGoodputGain times as long, goodput grows by minGoodputGain (Little's
// law).
func (l *concurrencyLimiter) slowedDown() bool {
	return minGoodputGain*float64(l.round.mean()) > 2*float64(l.last.mean())
}

func (l *concurrencyLimiter) endRound(now time.Duration) {
	l.round.measured = true
	l.last = l.round
	l.newRound(now)
}

// delayRound delays the round until the requests sent under the previous limit have ended.
// Until then goodput is still that of the previous limit.
func (l *concurrencyLimiter) delayRound() {
	l.round.began += min(l.last.mean(), maxRoundTime)
}

// climb ends a round that has lasted long enough, and moves the limit. A round lasts at least
// three of the usual latencies, even beyond maxRoundTime. Otherwise the limit of an upstream
// with slow responses would move several times before the first response under it. A round
// that fails has shown the effect of its limit.
func (l *concurrencyLimiter) climb(now time.Duration, u *latency.Baseline) {
	r := &l.round
	r.took = now - r.began
	least := max(roundTime, min(2*r.mean(), maxRoundTime))
	if !r.fails() {
		least = max(least, 3*u.Mean)
	}
	if r.took < least || r.good+r.bad < roundGood && r.took < maxRoundTime {
		return
	}
	l.limit = max(minConcurrencyLimit, l.next(u))
	l.endRound(now)
	l.delayRound()
}

// next returns the limit for the next round.
func (l *concurrencyLimiter) next(u *latency.Baseline) float64 {
	r := &l.round
	more := r.limit + max(1, r.limit*growth)
	if l.last.full && u.Known() && float64(r.mean()) <= baselineFactor*float64(u.Mean) {
		more = r.limit + max(1, r.limit*fastGrowth)
	}
	switch {
	case float64(r.bad) >= badShare*float64(r.good+r.bad):
		return r.limit * shrinkage
	case !r.full || l.unreachedSince != backoff.Forever:
		return r.limit // no request had to wait, or none does any longer: goodput equals the load
	case !u.Known() || r.mean() <= slowTimes*u.Mean:
		return more
	case float64(r.waits) < waitShare*float64(r.good):
		return r.limit
	}
	return l.seek(u, more)
}

// seek moves the limit of a slow upstream: down as long as goodput does not follow, but not
// below the sustained concurrency. If responses are slow even there, or goodput follows the
// limit down, load is not the reason. Then the baseline has changed, and the limit must not
// make it worse.
func (l *concurrencyLimiter) seek(u *latency.Baseline, more float64) float64 {
	r := &l.round
	sustained := max(minConcurrencyLimit, u.Concurrency)
	if r.limit <= sustained {
		if l.slowRounds++; l.slowRounds >= maxSlowRounds {
			l.baselineShifted = true
		}
		return sustained
	}
	e, known := elasticity(&l.last, r)
	switch {
	case !known && !l.overloaded:
		return more // after a slow start, which went well so far
	case !known:
		return max(sustained, r.limit*shrinkage)
	case e < elasticLow:
		// Little's law: goodput times the usual latency is the concurrency that the
		// upstream needs.
		return max(sustained, r.limit*maxShrinkage, min(r.limit*shrinkage, headroom*r.rate()*u.Mean.Seconds()))
	case e > elasticHigh:
		l.baselineShifted = r.limit < l.last.limit // a step up is too small to show this
		return more
	}
	return r.limit
}

// elasticity returns how much goodput followed the limit from round a to round b. It
// returns false if a round lacks data or the limit did not move.
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
