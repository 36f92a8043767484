// Package ratelimit spaces the attempts at an upstream in time. Limiter grants slots of a
// Rate, alone or with leases from a Ledger that many processes share. Pauses keeps the
// pauses that a 429 asks for.
package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Rate is the number of attempts, or of tokens of a language model's API, that an upstream may get per
// period. The zero value is no limit.
type Rate struct {
	Count int64
	Per   time.Duration // a second, a minute or an hour
}

var rateLimitPeriods = []struct {
	name string
	long time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// Limits of a Rate of attempts. Ten thousand per second are a slot every 100 us, which is about the
// resolution of timers.
const (
	maxRateLimitAttempts = 1_000_000
	minRateLimitGap      = 100 * time.Microsecond
)

// ParseRate parses a rate of attempts: a number, a slash and s, m or h, such as 100/s or 5000/h.
func ParseRate(text string) (Rate, error) {
	r, err := parseRate(text, maxRateLimitAttempts)
	if err == nil && r.Per/time.Duration(r.Count) < minRateLimitGap {
		return Rate{}, errors.New("more than 10000 a second")
	}
	return r, err
}

// ParseTokenRate parses a rate of tokens in the same syntax: 200000/m.
func ParseTokenRate(text string) (Rate, error) { return parseRate(text, maxLimit) }

// parseRate parses a rate with a number from 1 to most.
func parseRate(text string, most int64) (Rate, error) {
	number, period, hasPeriod := strings.Cut(text, "/")
	u, err := strconv.ParseUint(number, 10, 63)
	n := int64(u)
	switch {
	case err != nil || n < 1 || n > most:
		return Rate{}, fmt.Errorf("%q is not a number from 1 to %d", number, most)
	case !hasPeriod:
		return Rate{}, fmt.Errorf("the unit is missing: %[1]s/s, %[1]s/m or %[1]s/h", number)
	}
	for _, p := range rateLimitPeriods {
		if p.name == period {
			return Rate{n, p.long}, nil
		}
	}
	return Rate{}, fmt.Errorf("%q is not s, m or h", period)
}

// Limited reports whether there is a limit.
func (r Rate) Limited() bool { return r.Count > 0 }

// String returns r in the syntax of ParseRate, or "off" if there is no limit.
func (r Rate) String() string {
	for _, p := range rateLimitPeriods {
		if r.Limited() && p.long == r.Per {
			return fmt.Sprintf("%d/%s", r.Count, p.name)
		}
	}
	return "off"
}

// rateLimitUse is the share of a rate limit that is used. An upstream that counts slightly
// differently, or a network that bunches evenly sent requests, would cause a 429 for the
// last percent. With a Retry-After, that stops all requests for a second or more, which
// costs more than the unused share.
const rateLimitUse = 0.985

// Gap returns the time between two slots, slightly more than the rate limit itself allows.
func (r Rate) Gap() time.Duration {
	return time.Duration(float64(r.Per) / (float64(r.Count) * rateLimitUse))
}

// PerSecond returns how fast a limit of tokens is replenished.
func (r Rate) PerSecond() float64 {
	if !r.Limited() {
		return 0
	}
	return float64(r.Count) / r.Per.Seconds() * rateLimitUse
}

// Limiter paces the attempts to one upstream: one slot each, evenly spaced.
//
// A single process grants all slots itself. In a fleet the slots are shared. Some are
// leased ahead of need, a few at a time (MakeRequest, ApplyGrant), from a Ledger, which
// counts all slots by the same rule; see docs/decisions/0016-fleet.md. In addition each
// process has its own share: the rate limit divided by the number of processes. It may use
// its share at once and report that later, while the last grant showed that the fleet does
// not use its whole rate limit. So a process with few requests does not wait for a lease.
// It also uses its share while there is no response, so no request ever waits for one.
//
// It is not safe for concurrent use. now is monotonic time of any origin not below 0, with
// the same origin for all calls. Make one with New.
type Limiter struct {
	gap      time.Duration // between two slots of all processes together
	fleet    bool
	rand     backoff.Rand
	share    time.Duration // between two slots of our own share
	ownAt    time.Duration // when the next own slot is
	leases   []lease       // in order of time
	reserved reserve       // for the time until the next request, if that is long
	owed     float64       // 0 to 1: the fraction of a slot that our share did not get yet

	waitingSince time.Duration // since when a response is awaited; never: none is
	failed       bool          // the last request got no response
	hasSlack     bool          // the last response showed unused slots
	usesOwnShare bool          // our own share is used because there is no response
	requestAt    time.Duration // when to send the next request

	unreported    int     // own slots used and not reported, less leased slots not used
	arrivals      int     // since the last request
	rate          float64 // arrivals per second
	served        float64 // slots used per second
	used          uint64  // slots used when served was last computed
	lastRequestAt time.Duration

	state State
}

// lease is a number of slots, a gap apart.
type lease struct {
	at time.Duration
	n  int
}

// reserve is a number of slots, spread evenly over a rest.
type reserve struct {
	lease
	gap time.Duration
	to  time.Duration // when the rest ends
}

// State holds the counters of a Limiter.
type State struct {
	Leased  uint64 // leased slots used
	Own     uint64 // slots of our own share used
	Expired uint64 // leased slots not used
}

// Plus returns the sum of s and t.
func (s State) Plus(t State) State {
	return State{Leased: s.Leased + t.Leased, Own: s.Own + t.Own, Expired: s.Expired + t.Expired}
}

const never = time.Duration(math.MinInt64)

const (
	// rateLimitCatchUp is how late an own slot may be used: timers and processes are late
	// now and then.
	rateLimitCatchUp = 50 * time.Millisecond
	// leaseKeep is how long a leased slot can be used. After that it is returned.
	leaseKeep = 100 * time.Millisecond
	// RateLimitHorizon is how far in advance slots are leased.
	RateLimitHorizon = 100 * time.Millisecond
	// RateLimitRequestInterval is the mean time between two requests while slots are
	// wanted.
	RateLimitRequestInterval = 50 * time.Millisecond
	// rateLimitGrantTimeout is how long a response is awaited before our own share is used.
	rateLimitGrantTimeout = 100 * time.Millisecond
	// ownAhead is the longest gap of our own share that is used without a lease. With more
	// processes than slots in that time, one slot per process would exceed the rate limit.
	ownAhead = 200 * time.Millisecond
	// minUnreported is how many slots of our own share may be used before they are reported,
	// or as many as the share has in unreportedFor. That is enough that hardly any request
	// waits for a lease while the fleet does not use its whole rate limit. With more, a
	// sudden peak would exceed the rate limit by the unreported slots.
	unreportedFor = RateLimitHorizon / 5
	minUnreported = 2
	// arrivalsMean is the time constant of the rate of arrivals.
	arrivalsMean = time.Second
)

// New returns a Limiter for a single process or for a fleet. r is used under the caller's
// lock; nil = backoff.Shared().
func New(rate Rate, fleet bool, r backoff.Rand) *Limiter {
	if r == nil {
		r = backoff.Shared()
	}
	gap := rate.Gap()
	return &Limiter{gap: gap, share: gap, fleet: fleet, rand: r, waitingSince: never, lastRequestAt: never}
}

// Share sets the number of processes, at least 1. It stays in effect while there is no
// response.
func (q *Limiter) Share(processes int) {
	q.share = q.gap * time.Duration(max(1, min(processes, 1_000_000)))
}

// Arrive records that an attempt wants a slot. Call it once for each attempt.
func (q *Limiter) Arrive() { q.arrivals++ }

// Take takes a slot and reports whether there is one now. Otherwise the attempt waits: Next
// returns until when at most, and RequestDue when to request a lease.
func (q *Limiter) Take(now time.Duration) bool {
	q.expireUnused(now)
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

// GiveBack returns the slot of an attempt that was not sent.
func (q *Limiter) GiveBack(now time.Duration) {
	if q.fleet {
		q.unreported--
		return
	}
	q.ownAt = max(q.ownAt-q.share, now-rateLimitCatchUp)
}

func (q *Limiter) useLease() {
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

// expireUnused returns leased slots that were not used in time. A slot of a reserve can be used
// until the next one.
func (q *Limiter) expireUnused(now time.Duration) {
	for q.reserved.n > 0 && q.reserved.at+max(leaseKeep, q.reserved.gap) < now {
		q.expireReserved()
	}
	for len(q.leases) > 0 && q.leases[0].at+leaseKeep < now {
		q.state.Expired++
		q.unreported--
		q.useLease()
	}
}

// expireReserved returns a slot of the reserve.
func (q *Limiter) expireReserved() {
	q.state.Expired++
	q.unreported--
	q.reserved.use()
}

// useOwn takes a slot of our own share and reports whether there was one.
func (q *Limiter) useOwn(now time.Duration) bool {
	if q.fleet {
		late := q.grantOverdue(now)
		if late && !q.usesOwnShare && !(q.hasSlack && q.share <= ownAhead) {
			// All processes lose the responses at once, so they start at random times.
			q.ownAt = max(q.ownAt, now+backoff.UpTo(q.rand, q.share))
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

// mayUseOwn reports whether our own share may be used without a lease.
func (q *Limiter) mayUseOwn() bool {
	return q.hasSlack && q.reserved.gap == 0 && q.share <= ownAhead && q.unreported < q.maxUnreported()
}

// maxUnreported returns how many slots of our own share may be used before they are
// reported.
func (q *Limiter) maxUnreported() int { return max(minUnreported, int(unreportedFor/q.share)) }

// grantOverdue reports whether a response is missing.
func (q *Limiter) grantOverdue(now time.Duration) bool {
	return q.failed || q.waitingSince != never && now-max(q.waitingSince, q.reserved.to) >= rateLimitGrantTimeout
}

// Next returns when Take may succeed without any other event, or Forever.
func (q *Limiter) Next(now time.Duration) time.Duration {
	at := max(q.ownAt, now)
	if q.fleet && !q.grantOverdue(now) && !q.mayUseOwn() {
		at = backoff.Forever
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

// Pace returns the approximate time between two slots for waiting requests.
func (q *Limiter) Pace() time.Duration {
	if !q.fleet || q.hasSlack {
		return q.gap
	}
	return time.Duration(float64(time.Second) / max(q.served, float64(time.Second)/float64(q.share)))
}

// Idle reports whether a new Limiter would grant no slot earlier than this one, and there
// is nothing to report.
func (q *Limiter) Idle(now time.Duration) bool {
	q.expireUnused(now)
	return q.ownAt+rateLimitCatchUp <= now && len(q.leases) == 0 && q.reserved.n == 0 && q.unreported == 0 && (!q.fleet || q.arrivals == 0)
}

// State returns the counters.
func (q *Limiter) State() State { return q.state }

// LeaseRequest asks a Ledger for slots.
type LeaseRequest struct {
	Key    uint64        // of the rate limit, the same in all processes
	Gap    time.Duration // between two slots
	Want   int           // slots wanted
	Charge int           // slots used without a lease; below 0: leased slots not used

	Share time.Duration // between two slots of the process's own share
	Rate  float64       // slots that it is likely to need per second
	Owed  float64       // the fraction of a slot that its share did not get before
	Every time.Duration // the minimum time until its next request

	Account *Account // not nil: limits that are learnt or count tokens, and nothing of the above but Key
}

// Shares returns the number of slots of the process's share in a rest.
func (a *LeaseRequest) Shares(rest time.Duration) float64 {
	return rest.Seconds()/max(a.Share, a.Gap, 1).Seconds() + a.Owed
}

// LeaseGrant is the response to a LeaseRequest.
type LeaseGrant struct {
	Slots int // 0 to LeaseRequest.Want
	// Ahead is how far ahead of now slots are already granted. The first of these slots
	// begins then, and the others follow a gap apart. It grows with the demand of the
	// fleet.
	Ahead time.Duration
	// Rest is how long the process sends no further request. Reserved is the number of
	// slots it gets evenly over that time, in addition to the others.
	Rest     time.Duration
	Reserved int

	Balance *Balance // if the request had an Account
}

// RequestDue returns when to call MakeRequest with waiting attempts: at once, later, or
// Forever.
func (q *Limiter) RequestDue(now time.Duration, waiting int) time.Duration {
	if !q.fleet || q.unreported == 0 && q.arrivals == 0 && waiting == 0 && len(q.leases) == 0 && q.reserved.n == 0 {
		return backoff.Forever
	}
	return max(q.requestAt, now)
}

// MakeRequest returns the request that is due, with waiting attempts.
func (q *Limiter) MakeRequest(now time.Duration, waiting int) LeaseRequest {
	q.expireUnused(now)
	first := q.lastRequestAt == never || now-q.lastRequestAt > RateLimitMaxRest
	q.measure(now)
	for q.reserved.n > 0 {
		q.expireReserved() // the response includes those that are needed
	}
	a := LeaseRequest{Gap: q.gap, Want: q.want(waiting), Share: q.share, Rate: q.rate, Owed: q.owed}
	if first && waiting > 0 {
		a.Rate = float64(time.Second) / float64(q.share) // not known yet
	}
	if most := int(RateLimitHorizon/q.gap) + 1; q.unreported > most {
		q.unreported = most // older slots no longer matter after an outage of the engine
	}
	a.Charge, q.unreported = q.unreported, 0
	// While demand exceeds the limit, each process gets the slots that accumulated since
	// the previous request. The random time keeps one process from always getting the most.
	q.requestAt = now + RateLimitRequestInterval/2 + backoff.UpTo(q.rand, RateLimitRequestInterval)
	if q.waitingSince == never {
		q.waitingSince = now
	}
	return a
}

// measure updates the rates.
func (q *Limiter) measure(now time.Duration) {
	used := q.state.Leased + q.state.Own
	if took := (now - q.lastRequestAt).Seconds(); q.lastRequestAt != never && took > 0 {
		weight := 1 - math.Exp(-took/arrivalsMean.Seconds())
		q.rate += (float64(q.arrivals)/took - q.rate) * weight
		q.served += (float64(used-q.used)/took - q.served) * weight
	}
	q.arrivals, q.used, q.lastRequestAt = 0, used, now
}

// want returns how many more slots are needed for waiting attempts and those that arrive
// before the response to the next request.
func (q *Limiter) want(waiting int) int {
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

// ApplyGrant processes the response to a request. Implausible values are capped: no more
// slots than the horizon has.
func (q *Limiter) ApplyGrant(now time.Duration, g LeaseGrant) {
	q.waitingSince, q.failed = never, false
	q.hasSlack = g.Ahead < RateLimitHorizon/2
	q.applyReserve(now, g)
	begin := max(0, min(g.Ahead, RateLimitHorizon))
	if n := min(g.Slots, int(RateLimitHorizon/q.gap)+1); n > 0 && len(q.leases) < maxLeases {
		q.leases = append(q.leases, lease{now + begin, n})
	}
	if wait := min(g.Ahead-RateLimitHorizon, RateLimitHorizon); wait > RateLimitRequestInterval {
		q.requestAt = max(q.requestAt, now+wait) // earlier requests would get no slots
	}
}

// applyReserve processes the part of a response for the time until the next request. The
// random start spreads processes that got the same response.
func (q *Limiter) applyReserve(now time.Duration, g LeaseGrant) {
	long := min(g.Rest, RateLimitMaxRest)
	q.reserved = reserve{}
	if long <= RateLimitRequestInterval {
		return
	}
	q.reserved.to = now + long - RateLimitRequestInterval/2 + backoff.UpTo(q.rand, RateLimitRequestInterval)
	q.requestAt = max(q.requestAt, q.reserved.to)
	q.reserved.gap = long
	q.owed = max(0, min(long.Seconds()/q.share.Seconds()+q.owed-float64(g.Reserved), 1))
	if n := min(g.Reserved, int(RateLimitMaxRest/q.gap)); n > 0 {
		q.reserved.gap, q.reserved.n = long/time.Duration(n), n
		q.reserved.at = now + backoff.UpTo(q.rand, q.reserved.gap)
	}
}

// maxLeases limits the number of leases. With one request per 50 ms and slots kept for 200
// ms at most, there are only a few.
const maxLeases = 16

// RequestFailed records that a request got no response. Our own share is used until there
// is one.
func (q *Limiter) RequestFailed() { q.failed, q.waitingSince = true, never }
