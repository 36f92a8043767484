package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// RateLimit is how many attempts an upstream may be sent in a time. The zero
// value is no rate limit.
type RateLimit struct {
	Attempts int           // 1 to 1 000 000
	Per      time.Duration // a second, a minute or an hour
}

var rateLimitPeriods = []struct {
	name string
	long time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// Bounds of a RateLimit. Ten thousand a second are a slot each 100 us, which is about as
// finely as timers go.
const (
	maxRateLimitAttempts = 1_000_000
	minRateLimitGap      = 100 * time.Microsecond
)

// ParseRateLimit reads a number, a slash and s, m or h: 100/s, 5000/h.
func ParseRateLimit(text string) (RateLimit, error) {
	number, period, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n < 1 || n > maxRateLimitAttempts {
		return RateLimit{}, fmt.Errorf("%q is not a number from 1 to %d", number, maxRateLimitAttempts)
	}
	for _, p := range rateLimitPeriods {
		if p.name != period {
			continue
		}
		r := RateLimit{int(n), p.long}
		if p.long/time.Duration(n) < minRateLimitGap {
			return RateLimit{}, errors.New("more than 10000 a second")
		}
		return r, nil
	}
	return RateLimit{}, fmt.Errorf("%q is none of s, m and h", period)
}

// Limited reports that there is a rate limit.
func (r RateLimit) Limited() bool { return r.Attempts > 0 }

// String is what ParseRateLimit reads; "off" for none.
func (r RateLimit) String() string {
	for _, p := range rateLimitPeriods {
		if r.Limited() && p.long == r.Per {
			return fmt.Sprintf("%d/%s", r.Attempts, p.name)
		}
	}
	return "off"
}

// rateLimitUse is how much of a rate limit is used. An upstream that counts a little
// differently, or whose network bunches what left evenly, says 429 to the last
// percent, and with a Retry-After that stops everybody for a second or more:
// dearer than not to use it.
const rateLimitUse = 0.985

// Gap is the time between two slots, a little more than the rate limit itself has.
func (r RateLimit) Gap() time.Duration {
	return time.Duration(float64(r.Per) / (float64(r.Attempts) * rateLimitUse))
}

// RateLimiter paces the attempts to one upstream: one slot for each, evenly spaced.
//
// Alone it hands out all slots itself. In a fleet they are the fleet's: some are
// leased ahead of need, a few at a time (Ask, Grant), from what keeps count of
// all, which goes by the same rule; see docs/decisions/0016-fleet.md. Beside
// those each process has a share, the rate limit divided by the processes. It may use
// that at once, and tell later, while the last response said that the fleet does
// not use all of its rate limit, so that whoever is rarely there does not wait for a
// lease; and while there is no response, so that nobody ever waits for one.
//
// It is not safe for concurrent use. now is monotonic time of any origin not
// below 0, the same origin for all calls. Make one with NewRateLimiter.
type RateLimiter struct {
	gap      time.Duration // between two slots of all processes together
	fleet    bool
	rand     Rand
	share    time.Duration // between two slots of our own
	ownAt    time.Duration // when the next of those is
	leases   []lease       // in the order of their time
	reserved reserve       // for the time until the next question, where that is long
	owed     float64       // 0 to 1, of a slot of our share: what did not make a whole one

	waitingSince time.Duration // since when a response has been waited for; never: none is
	failed       bool          // the last question had no response
	hasSlack     bool          // the last response said that slots are left over
	usesOwnShare bool          // our own share is in use for want of a response
	requestAt    time.Duration // when it is worth asking again

	unreported    int     // slots used of our own and not told, less those leased and not used
	arrivals      int     // since the last question
	rate          float64 // of arrivals, a second
	served        float64 // slots used, a second
	used          uint64  // slots used when that was last reckoned
	lastRequestAt time.Duration

	state RateLimiterState
}

// lease is some slots, a gap apart.
type lease struct {
	at time.Duration
	n  int
}

// reserve is some slots, evenly over a rest.
type reserve struct {
	lease
	gap time.Duration
	to  time.Duration // when the rest ends
}

// RateLimiterState is what a Rate limit counted.
type RateLimiterState struct {
	Leased  uint64 // slots used of those leased
	Own     uint64 // slots used of our own share
	Expired uint64 // slots leased that nobody used
}

// Plus adds up.
func (s RateLimiterState) Plus(t RateLimiterState) RateLimiterState {
	return RateLimiterState{Leased: s.Leased + t.Leased, Own: s.Own + t.Own, Expired: s.Expired + t.Expired}
}

const never = time.Duration(math.MinInt64)

const (
	// rateLimitCatchUp is how far behind its time a slot of our own may be used:
	// timers and processes are late now and then.
	rateLimitCatchUp = 50 * time.Millisecond
	// leaseKeep is how long a leased slot can be used. What is not used by then is given back.
	leaseKeep = 100 * time.Millisecond
	// RateLimitHorizon is how far ahead slots are leased.
	RateLimitHorizon = 100 * time.Millisecond
	// RateLimitRequestInterval is the mean time between two questions while slots are wanted.
	RateLimitRequestInterval = 50 * time.Millisecond
	// rateLimitGrantTimeout is how long a response is waited for before our own share is used.
	rateLimitGrantTimeout = 100 * time.Millisecond
	// ownAhead is the longest gap of our own share that is used without asking.
	// With more processes than the rate limit has slots in that time, each having
	// one ready would be more than the upstream takes.
	ownAhead = 200 * time.Millisecond
	// minUnreported is how many slots of our own share are used before that is told, or as
	// many as it has in unreportedFor: enough that nearly nobody waits for a lease while
	// the fleet does not use its whole rate limit. With more, those who use it up in an instant
	// exceed it by what was not told.
	unreportedFor = RateLimitHorizon / 5
	minUnreported = 2
	// arrivalsMean is the time constant of the rate of arrivals.
	arrivalsMean = time.Second
)

// NewRateLimiter makes one that is used by one process alone, or by a fleet. r is used
// under the user's lock; nil = Shared().
func NewRateLimiter(rate RateLimit, fleet bool, r Rand) *RateLimiter {
	if r == nil {
		r = Shared()
	}
	gap := rate.Gap()
	return &RateLimiter{gap: gap, share: gap, fleet: fleet, rand: r, waitingSince: never, lastRequestAt: never}
}

// Share tells how many processes there are, 1 at least. It is kept while
// there is no response.
func (q *RateLimiter) Share(processes int) {
	q.share = q.gap * time.Duration(max(1, min(processes, 1_000_000)))
}

// Arrive notes that an attempt wants a slot; once for each.
func (q *RateLimiter) Arrive() { q.arrivals++ }

// Take takes a slot, if there is one now. Otherwise the attempt waits: Next
// says until when at most, and Wanted that a lease is worth asking for.
func (q *RateLimiter) Take(now time.Duration) bool {
	q.drop(now)
	if q.reserved.n > 0 && q.reserved.at <= now {
		q.state.Leased++
		q.reserved.use()
		return true
	}
	if len(q.leases) > 0 && q.leases[0].at <= now {
		q.state.Leased++
		q.useLease()
		return true
	}
	if q.useOwn(now) {
		q.state.Own++
		if q.fleet {
			q.unreported++
		}
		return true
	}
	if q.fleet && q.waitingSince == never {
		q.waitingSince = now
	}
	return false
}

// GiveBack returns the slot of an attempt that was not sent after all.
func (q *RateLimiter) GiveBack(now time.Duration) {
	if q.fleet {
		q.unreported--
		return
	}
	q.ownAt = max(q.ownAt-q.share, now-rateLimitCatchUp)
}

func (q *RateLimiter) useLease() {
	l := &q.leases[0]
	l.at += q.gap
	if l.n--; l.n == 0 {
		q.leases = append(q.leases[:0], q.leases[1:]...)
	}
}

func (r *reserve) use() {
	r.at += r.gap
	r.n--
}

// drop gives back what was leased and not used in time. A slot of a reserve can be used
// until the next one is there.
func (q *RateLimiter) drop(now time.Duration) {
	for q.reserved.n > 0 && q.reserved.at+max(leaseKeep, q.reserved.gap) < now {
		q.expire()
	}
	for len(q.leases) > 0 && q.leases[0].at+leaseKeep < now {
		q.state.Expired++
		q.unreported--
		q.useLease()
	}
}

// expire gives back a slot of the reserve.
func (q *RateLimiter) expire() {
	q.state.Expired++
	q.unreported--
	q.reserved.use()
}

// useOwn takes a slot of our own share.
func (q *RateLimiter) useOwn(now time.Duration) bool {
	if q.fleet {
		late := q.grantOverdue(now)
		if late && !q.usesOwnShare && !(q.hasSlack && q.share <= ownAhead) {
			// All processes lose the answers at once: they begin apart.
			q.ownAt = max(q.ownAt, now+upTo(q.rand, q.share))
		}
		q.usesOwnShare = late
		if !late && !q.mayUseOwn() {
			return false
		}
	}
	if q.ownAt > now {
		return false
	}
	q.ownAt = max(q.ownAt, now-rateLimitCatchUp) + q.share
	return true
}

// mayUseOwn says whether our own share may be used without asking.
func (q *RateLimiter) mayUseOwn() bool {
	return q.hasSlack && q.reserved.gap == 0 && q.share <= ownAhead && q.unreported < q.maxUnreported()
}

// maxUnreported is how many slots of our own share are used before that is told.
func (q *RateLimiter) maxUnreported() int { return max(minUnreported, int(unreportedFor/q.share)) }

// grantOverdue says whether a response is missing.
func (q *RateLimiter) grantOverdue(now time.Duration) bool {
	return q.failed || q.waitingSince != never && now-max(q.waitingSince, q.reserved.to) >= rateLimitGrantTimeout
}

// Next is when Take may say yes without anything else happening.
func (q *RateLimiter) Next(now time.Duration) time.Duration {
	at := max(q.ownAt, now)
	if q.fleet && !q.grantOverdue(now) && !q.mayUseOwn() {
		at = Forever
		if q.waitingSince != never {
			at = max(q.waitingSince, q.reserved.to) + rateLimitGrantTimeout
		}
	}
	if q.reserved.n > 0 {
		at = min(at, max(q.reserved.at, now))
	}
	if len(q.leases) > 0 {
		at = min(at, max(q.leases[0].at, now))
	}
	return at
}

// Pace is about how long it takes from one slot to the next, for who waits.
func (q *RateLimiter) Pace() time.Duration {
	if !q.fleet || q.hasSlack {
		return q.gap
	}
	return time.Duration(float64(time.Second) / max(q.served, float64(time.Second)/float64(q.share)))
}

// Idle says that a new Rate limit would grant no slot earlier than this one, and that
// there is nothing to tell.
func (q *RateLimiter) Idle(now time.Duration) bool {
	q.drop(now)
	return q.ownAt+rateLimitCatchUp <= now && len(q.leases) == 0 && q.reserved.n == 0 && q.unreported == 0 && (!q.fleet || q.arrivals == 0)
}

// State gives the counts.
func (q *RateLimiter) State() RateLimiterState { return q.state }

// RateLimitLeaseRequest is a question for slots.
type RateLimitLeaseRequest struct {
	Key    uint64        // whose rate limit, the same in all processes
	Gap    time.Duration // between two slots
	Want   int           // slots wanted
	Charge int           // slots used without asking; below 0: leased ones not used

	Share time.Duration // between two slots of the process's own share
	Rate  float64       // slots that it is likely to need, a second
	Owed  float64       // of its share, a part of a slot that it did not get before
	Every time.Duration // it does not ask again before that
}

// Shares is how many slots of its share the process has in a rest.
func (a *RateLimitLeaseRequest) Shares(rest time.Duration) float64 {
	return rest.Seconds()/max(a.Share, a.Gap, 1).Seconds() + a.Owed
}

// RateLimitLeaseGrant is the response.
type RateLimitLeaseGrant struct {
	Slots int // 0 to RateLimitLeaseRequest.Want
	// Ahead is how far ahead slots were given out already: the first of these
	// begins then, from now, and the others follow a gap apart. The further, the
	// more the fleet wants.
	Ahead time.Duration
	// Rest is how long the process does not ask again, and Reserved how many
	// slots it has evenly over that time, beside the others.
	Rest     time.Duration
	Reserved int
}

// RequestDue says when Ask is worth calling, with so many waiting for a slot: at once,
// at a time, or Forever.
func (q *RateLimiter) RequestDue(now time.Duration, waiting int) time.Duration {
	if !q.fleet || q.unreported == 0 && q.arrivals == 0 && waiting == 0 && len(q.leases) == 0 && q.reserved.n == 0 {
		return Forever
	}
	return max(q.requestAt, now)
}

// MakeRequest makes the question that is due, with so many waiting for a slot.
func (q *RateLimiter) MakeRequest(now time.Duration, waiting int) RateLimitLeaseRequest {
	q.drop(now)
	first := q.lastRequestAt == never || now-q.lastRequestAt > RateLimitMaxRest
	q.measure(now)
	for q.reserved.n > 0 {
		q.expire() // the response has those that are needed
	}
	a := RateLimitLeaseRequest{Gap: q.gap, Want: q.want(now, waiting), Share: q.share, Rate: q.rate, Owed: q.owed}
	if first && waiting > 0 {
		a.Rate = float64(time.Second) / float64(q.share) // it is not known yet
	}
	if most := int(RateLimitHorizon/q.gap) + 1; q.unreported > most {
		q.unreported = most // what an absent engine was not told is over
	}
	a.Charge, q.unreported = q.unreported, 0
	// While all want more than there is, each gets what has come together since somebody
	// asked before; so that this is not always the same, the times vary.
	q.requestAt = now + RateLimitRequestInterval/2 + upTo(q.rand, RateLimitRequestInterval)
	if q.waitingSince == never {
		q.waitingSince = now
	}
	return a
}

// measure brings the rates up to date.
func (q *RateLimiter) measure(now time.Duration) {
	used := q.state.Leased + q.state.Own
	if took := (now - q.lastRequestAt).Seconds(); q.lastRequestAt != never && took > 0 {
		weight := 1 - math.Exp(-took/arrivalsMean.Seconds())
		q.rate += (float64(q.arrivals)/took - q.rate) * weight
		q.served += (float64(used-q.used)/took - q.served) * weight
	}
	q.arrivals, q.used, q.lastRequestAt = 0, used, now
}

// want is how many slots more are needed for those who wait and those who will
// come until the answer to the next question is there.
func (q *RateLimiter) want(now time.Duration, waiting int) int {
	const ahead = 2 * RateLimitRequestInterval
	need := float64(waiting) + q.rate*ahead.Seconds()
	if q.mayUseOwn() {
		need -= min(ahead.Seconds()/q.share.Seconds(), float64(q.maxUnreported()))
	}
	for _, l := range q.leases {
		need -= float64(l.n)
	}
	n := int(math.Round(min(need, float64(RateLimitHorizon/q.gap)+1)))
	if waiting > 0 && len(q.leases) == 0 {
		n = max(n, 1)
	}
	return max(n, 0)
}

// ApplyGrant takes in the answer to a question. What is not plausible is believed as
// far as it is: no more slots than the horizon has.
func (q *RateLimiter) ApplyGrant(now time.Duration, g RateLimitLeaseGrant) {
	q.waitingSince, q.failed = never, false
	q.hasSlack = g.Ahead < RateLimitHorizon/2
	q.applyReserve(now, g)
	begin := max(0, min(g.Ahead, RateLimitHorizon))
	if n := min(g.Slots, int(RateLimitHorizon/q.gap)+1); n > 0 && len(q.leases) < maxLeases {
		q.leases = append(q.leases, lease{now + begin, n})
	}
	if wait := min(g.Ahead-RateLimitHorizon, RateLimitHorizon); wait > RateLimitRequestInterval {
		q.requestAt = max(q.requestAt, now+wait) // before that, there is nothing to be had
	}
}

// applyReserve takes in the part of a response that is for the time until the next question. Of
// all who were told at once each begins at another time.
func (q *RateLimiter) applyReserve(now time.Duration, g RateLimitLeaseGrant) {
	long := min(g.Rest, RateLimitMaxRest)
	q.reserved = reserve{}
	if long <= RateLimitRequestInterval {
		return
	}
	q.reserved.to = now + long - RateLimitRequestInterval/2 + upTo(q.rand, RateLimitRequestInterval)
	q.requestAt = max(q.requestAt, q.reserved.to)
	q.reserved.gap = long
	q.owed = max(0, min(long.Seconds()/q.share.Seconds()+q.owed-float64(g.Reserved), 1))
	if n := min(g.Reserved, int(RateLimitMaxRest/q.gap)); n > 0 {
		q.reserved.gap, q.reserved.n = long/time.Duration(n), n
		q.reserved.at = now + upTo(q.rand, q.reserved.gap)
	}
}

// maxLeases bounds what is kept; at one question each 50 ms and slots kept for
// 200 ms at most there are never more than a few.
const maxLeases = 16

// RequestFailed notes that a question had no response. Our own share is used until there
// is one.
func (q *RateLimiter) RequestFailed() { q.failed, q.waitingSince = true, never }
