package policy

import (
	"math"
	"time"
)

// limiter finds how many requests an upstream bears at once, while there is
// evidence that it does not bear them all. It is not safe for concurrent use.
//
// It has two phases. The slow start after an outage begins with the mean
// concurrency remembered from before and adds one for each request that goes
// well, so it doubles in the time of one answer, up to rampTimes of what is
// remembered, as long as goodput grows with it. Then, and when overload made
// the limit bind without an outage, it climbs: each round it compares goodput
// and latency with those of the round before and moves by a step.
//
// It ends when nobody had to wait for a while: a limit that nobody reaches is
// only a risk.
type limiter struct {
	bound      bool
	starting   bool    // slow start
	overloaded bool    // overload bound it, not an outage
	anew       bool    // of an upstream that came back slower, see startAnew
	untold     bool    // slow start of which no answer was heard, see growUntold
	limit      float64 // >= 1; its whole part counts
	top        float64 // of the slow start

	boundAt  time.Duration
	old      int64         // of those under way since before a slow start, those that do not count
	extra    int64         // let through in silence, see trickle
	extraAt  time.Duration // the last of these
	easyFrom time.Duration // since when nobody waits; Forever: somebody does
	overload overload      // while not bound
	times    uint64        // how often overload bound it
	unbegun  bool          // the first round begins with the first answer to what was sent under the limit
	slowWell int           // rounds that were slow with no more than what was seen to go well
	innocent bool          // the upstream became slow, but not by its load: what is usual has changed

	round round // under way
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
	// leastLimit is the stated minimum per process: no evidence of overload
	// takes the limit below it. With fifty proxies these are 150 at once.
	// Only a slow start may begin below, with 1.
	leastLimit = 3
	// rampTimes is how far above the mean concurrency before an outage the
	// slow start goes. An upstream with reserves of any kind bears a burst
	// of that; one without is found out by its goodput. All the callers who
	// waited then come at once, so less makes them wait longer: with five,
	// what gathered in 2 s of patience is worked off in the time of four
	// usual answers per second of it.
	rampTimes = 5
	// startUnknown is the begin of a slow start without a memory.
	startUnknown = leastLimit

	easyTime  = time.Second     // nobody waits for so long: the limit ends
	roundTime = time.Second     // a round takes this at least...
	roundMost = 3 * time.Second // and this at most, when few requests end
	roundGood = 20

	growth        = 0.1 // of the limit in a round
	easyGrowth    = 0.5 // the same from the second on while answers take no longer than usual...
	easyTimes     = 1.25
	shrinkage     = 0.8
	mostShrinkage = 0.5
	headroom      = 1.25 // over Little's law, so that the limit can find out that more goes
	slowTimes     = 2    // latency above this many times the usual is slow

	// Elasticity is d ln(goodput) / d ln(limit). At 1 the upstream takes
	// more and gives more; at 0 more only makes it slower.
	elasticHigh = 0.6
	elasticLow  = 0.4

	slowWellRounds = 3 // slow at a limit that went well before, to be innocent

	bindLeast = 10  // requests at once that overload has at least
	crowded   = 0.2 // who had to wait, of those answered, that say that more comes than is answered
	badShare  = 0.2 // failures in a round that shrink the limit
)

// overload tells an upstream that gets more than it answers from one that is only
// slower than it was: what is under way grows from window to window. It grows
// as well for the time of one answer when answers begin to take longer, so
// the first window that looks overloaded does not count.
type overload struct {
	seen           bool
	sent, answered int64 // since the first window that looked so
}

// grows takes in another window that looks overloaded and says whether more came
// than was answered, by more than chance and by more than a few callers who left.
func (o *overload) grows(sent, answered int64, least float64) bool {
	if !o.seen {
		o.seen = true
		return false
	}
	o.sent += sent
	o.answered += answered
	more, all := float64(o.sent-o.answered), float64(o.sent)
	return float64(answered)+3*math.Sqrt(float64(answered)) < least || more > max(bindLeast, 3*math.Sqrt(all), 0.05*all)
}

// whole is the limit in requests.
func (l *limiter) whole() int64 { return int64(l.limit) }

// room says whether a place is free when so many are taken.
func (l *limiter) room(taken int64) bool { return taken-l.old-l.extra < l.whole() }

// start begins a slow start. old of the requests under way do not count.
func (l *limiter) start(now time.Duration, old int64, u *usual) {
	*l = limiter{bound: true, starting: true, boundAt: now, old: old, easyFrom: Forever, times: l.times}
	if u.known() {
		l.limit = max(1, u.concurrency) + u.pending
		l.top = max(leastLimit, rampTimes*u.concurrency) + u.pending
	} else {
		l.limit, l.top = startUnknown, maxFixed
	}
	l.newRound(now)
}

// startAnew goes on with a slow start, or begins one, that knows no top: what is
// usual has changed, and so many at once are needed for the goodput of before. It
// has no effect while nothing is bound.
func (l *limiter) startAnew(now time.Duration, needed float64) {
	if !l.bound {
		return
	}
	l.starting, l.anew, l.top = true, true, maxFixed
	l.limit = min(max(l.limit, needed), maxFixed)
	l.last = round{}
	l.newRound(now)
}

// bind begins to climb from what is under way now.
func (l *limiter) bind(now time.Duration, inFlight int64) {
	*l = limiter{bound: true, overloaded: true, boundAt: now, easyFrom: Forever, times: l.times + 1}
	l.limit = float64(max(inFlight, leastLimit))
	l.newRound(now)
	l.unbegun = true
}

// release ends the limit.
func (l *limiter) release() { *l = limiter{times: l.times} }

func (l *limiter) newRound(now time.Duration) {
	l.round = round{began: now, limit: l.limit}
}

// waited notes that somebody has to wait for the limit.
func (l *limiter) waited() {
	l.round.full = true
	l.round.waits++
	l.easyFrom = Forever
}

// rest notes whether the limit is reached, and says whether the limit may end.
func (l *limiter) rest(now time.Duration, reached bool) bool {
	switch {
	case reached:
		l.easyFrom = Forever
		return false
	case l.easyFrom == Forever:
		l.easyFrom = now
	}
	return now >= l.easyFrom+easyTime
}

// event is when rest has something to say.
func (l *limiter) event() time.Duration {
	if !l.bound || l.easyFrom == Forever {
		return Forever
	}
	return l.easyFrom + easyTime
}

// left notes that an attempt ended which took its place at entered.
func (l *limiter) left(entered time.Duration) {
	if l.old > 0 && entered < l.boundAt {
		l.old--
	}
}

// trickle lets one request more through when nothing was answered for longer
// than overdue, and says so. Places may have been lost, or be taken by long
// polls; if the upstream has stopped, two of these show it (see silence).
func (l *limiter) trickle(now, answeredAt, due time.Duration, taken int64) bool {
	if now < l.trickleAt(answeredAt, due) {
		return false
	}
	l.extra = max(l.extra, taken-l.old-l.whole()) + 1
	l.extraAt = now
	return true
}

// trickleAt is when trickle has its way.
func (l *limiter) trickleAt(answeredAt, due time.Duration) time.Duration {
	return max(answeredAt, l.boundAt, l.extraAt) + due
}

// ended takes in an attempt that was sent under this limit.
func (l *limiter) ended(now, entered time.Duration, good bool, u *usual) {
	if good {
		l.extra = 0
	}
	if entered < l.boundAt || now < l.round.began {
		return
	}
	l.untold = false
	if l.unbegun {
		l.unbegun = false
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
// it grows with time, so that callers do not wait as long as one answer takes: it
// doubles every untoldStep. Where answers are known to be quick, it ends at its top.
const (
	untoldStep  = 100 * time.Millisecond
	untoldQuick = time.Second
)

// untoldAt is when the limit doubles next without an answer.
func (l *limiter) untoldAt(u *usual) time.Duration {
	if !l.starting || !l.untold || l.limit >= maxFixed || l.limit >= l.top && u.known() && u.p90 <= untoldQuick {
		return Forever
	}
	return l.round.began + untoldStep
}

// growUntold doubles the limit when no answer came for so long.
func (l *limiter) growUntold(now time.Duration, u *usual) {
	for now >= l.untoldAt(u) {
		at := l.untoldAt(u)
		l.limit = min(2*l.limit, maxFixed)
		l.newRound(at)
	}
}

// startStep ends the slow start at its top, or when a doubling of the limit
// brought less than a quarter more goodput and made answers slower.
func (l *limiter) startStep(now time.Duration, u *usual) {
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
	if l.last.measured && (l.inVain(u) || l.anew && l.slowedDown()) {
		l.starting = false
		l.limit = max(leastLimit, l.last.limit)
	}
	l.endRound(now)
}

const worthwhile = 1.25 // times the goodput, for twice as many at once

// inVain says whether the last doubling was, as far as goodput tells.
func (l *limiter) inVain(u *usual) bool {
	const sayingMuch, slower = 8, 1.25
	r := &l.round
	return r.full && l.last.limit >= sayingMuch && r.rate() < worthwhile*l.last.rate() && float64(r.mean()) > slower*float64(l.last.mean())
}

// slowedDown says the same as far as latency tells, which it does with few
// requests too: twice as many at once that each take 2/worthwhile times as long
// bring worthwhile times the goodput (Little's law).
func (l *limiter) slowedDown() bool {
	return worthwhile*float64(l.round.mean()) > 2*float64(l.last.mean())
}

func (l *limiter) endRound(now time.Duration) {
	l.round.measured = true
	l.last = l.round
	l.newRound(now)
}

// settle lets the round begin when what was sent under the last one has ended:
// until then goodput is still that of the limit before.
func (l *limiter) settle() {
	l.round.began += min(l.last.mean(), roundMost)
}

// climb ends a round when it has lasted, and moves the limit.
func (l *limiter) climb(now time.Duration, u *usual) {
	r := &l.round
	r.took = now - r.began
	least := max(roundTime, 3*u.mean, min(2*r.mean(), roundMost))
	if r.took < least || r.good+r.bad < roundGood && r.took < max(roundMost, least) {
		return
	}
	l.limit = max(leastLimit, l.next(u))
	l.endRound(now)
	l.settle()
}

// next is the limit for the next round.
func (l *limiter) next(u *usual) float64 {
	r := &l.round
	more := r.limit + max(1, r.limit*growth)
	if l.last.full && u.known() && float64(r.mean()) <= easyTimes*float64(u.mean) {
		more = r.limit + max(1, r.limit*easyGrowth)
	}
	switch {
	case float64(r.bad) >= badShare*float64(r.good+r.bad):
		return r.limit * shrinkage
	case !r.full || l.easyFrom != Forever:
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
func (l *limiter) seek(u *usual, more float64) float64 {
	r := &l.round
	well := max(leastLimit, u.concurrency)
	if r.limit <= well {
		if l.slowWell++; l.slowWell >= slowWellRounds {
			l.innocent = true
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
		// when nothing is wrong, is what the upstream needs under way.
		return max(well, r.limit*mostShrinkage, min(r.limit*shrinkage, headroom*r.rate()*u.mean.Seconds()))
	case e > elasticHigh:
		l.innocent = r.limit < l.last.limit // a step up is too small to tell
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
