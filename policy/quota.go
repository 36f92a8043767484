package policy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// QuotaRate is how many attempts an upstream may be sent in a time. The zero
// value is no quota.
type QuotaRate struct {
	Attempts int           // 1 to 1 000 000
	Per      time.Duration // a second, a minute or an hour
}

var quotaPeriods = []struct {
	name string
	long time.Duration
}{{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}}

// Bounds of a QuotaRate. Ten thousand a second are a slot each 100 us, which is about as
// finely as timers go.
const (
	maxQuotaAttempts = 1_000_000
	leastQuotaGap    = 100 * time.Microsecond
)

// ParseQuota reads a number, a slash and s, m or h: 100/s, 5000/h.
func ParseQuota(text string) (QuotaRate, error) {
	number, period, _ := strings.Cut(text, "/")
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || n < 1 || n > maxQuotaAttempts {
		return QuotaRate{}, fmt.Errorf("%q is not a number from 1 to %d", number, maxQuotaAttempts)
	}
	for _, p := range quotaPeriods {
		if p.name != period {
			continue
		}
		r := QuotaRate{int(n), p.long}
		if p.long/time.Duration(n) < leastQuotaGap {
			return QuotaRate{}, errors.New("more than 10000 a second")
		}
		return r, nil
	}
	return QuotaRate{}, fmt.Errorf("%q is none of s, m and h", period)
}

// Limited reports that there is a quota.
func (r QuotaRate) Limited() bool { return r.Attempts > 0 }

// String is what ParseQuota reads; "off" for none.
func (r QuotaRate) String() string {
	for _, p := range quotaPeriods {
		if r.Limited() && p.long == r.Per {
			return fmt.Sprintf("%d/%s", r.Attempts, p.name)
		}
	}
	return "off"
}

// quotaUse is how much of a quota is used. An upstream that counts a little
// differently, or whose network bunches what left evenly, says 429 to the last
// percent, and with a Retry-After that stops everybody for a second or more:
// dearer than not to use it.
const quotaUse = 0.985

// Gap is the time between two slots, a little more than the quota itself has.
func (r QuotaRate) Gap() time.Duration {
	return time.Duration(float64(r.Per) / (float64(r.Attempts) * quotaUse))
}

// Quota paces the attempts to one upstream: one slot for each, evenly spaced.
//
// Alone it hands out all slots itself. In a fleet they are the fleet's: some are
// leased ahead of need, a few at a time (Ask, Grant), from what keeps count of
// all, which goes by the same rule; see docs/decisions/0016-fleet.md. Beside
// those each process has a share, the quota divided by the processes. It may use
// that at once, and tell later, while the last answer said that the fleet does
// not use all of its quota, so that whoever is rarely there does not wait for a
// lease; and while there is no answer, so that nobody ever waits for one.
//
// It is not safe for concurrent use. now is monotonic time of any origin not
// below 0, the same origin for all calls. Make one with NewQuota.
type Quota struct {
	gap    time.Duration // between two slots of all processes together
	fleet  bool
	rand   Rand
	share  time.Duration // between two slots of our own
	ownAt  time.Duration // when the next of those is
	leases []lease       // in the order of their time
	rests  reserve       // for the time until the next question, where that is long
	owed   float64       // 0 to 1, of a slot of our share: what did not make a whole one

	wantedAt time.Duration // since when an answer has been waited for; never: none is
	failed   bool          // the last question had no answer
	slack    bool          // the last answer said that slots are left over
	exposed  bool          // our own share is in use for want of an answer
	askAt    time.Duration // when it is worth asking again

	charge   int     // slots used of our own and not told, less those leased and not used
	arrivals int     // since the last question
	rate     float64 // of arrivals, a second
	served   float64 // slots used, a second
	used     uint64  // slots used when that was last reckoned
	askedAt  time.Duration

	state QuotaState
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

// QuotaState is what a Quota counted.
type QuotaState struct {
	Leased  uint64 // slots used of those leased
	Own     uint64 // slots used of our own share
	Expired uint64 // slots leased that nobody used
}

// Plus adds up.
func (s QuotaState) Plus(t QuotaState) QuotaState {
	return QuotaState{Leased: s.Leased + t.Leased, Own: s.Own + t.Own, Expired: s.Expired + t.Expired}
}

const never = time.Duration(math.MinInt64)

const (
	// quotaCatchUp is how far behind its time a slot of our own may be used:
	// timers and processes are late now and then.
	quotaCatchUp = 50 * time.Millisecond
	// leaseKeep is how long a leased slot can be used. What is not used by then is given back.
	leaseKeep = 100 * time.Millisecond
	// QuotaHorizon is how far ahead slots are leased.
	QuotaHorizon = 100 * time.Millisecond
	// QuotaAskEvery is the mean time between two questions while slots are wanted.
	QuotaAskEvery = 50 * time.Millisecond
	// quotaPatience is how long an answer is waited for before our own share is used.
	quotaPatience = 100 * time.Millisecond
	// ownAhead is the longest gap of our own share that is used without asking.
	// With more processes than the quota has slots in that time, each having
	// one ready would be more than the upstream takes.
	ownAhead = 200 * time.Millisecond
	// ownUntold is how many slots of our own share are used before that is told, or as
	// many as it has in untoldFor: enough that nearly nobody waits for a lease while
	// the fleet does not use its whole quota. With more, those who use it up in an instant
	// exceed it by what was not told.
	untoldFor = QuotaHorizon / 5
	ownUntold = 2
	// arrivalsMean is the time constant of the rate of arrivals.
	arrivalsMean = time.Second
)

// NewQuota makes one that is used by one process alone, or by a fleet. r is used
// under the user's lock; nil = Shared().
func NewQuota(rate QuotaRate, fleet bool, r Rand) *Quota {
	if r == nil {
		r = Shared()
	}
	gap := rate.Gap()
	return &Quota{gap: gap, share: gap, fleet: fleet, rand: r, wantedAt: never, askedAt: never}
}

// Share tells how many processes there are, 1 at least. It is kept while
// there is no answer.
func (q *Quota) Share(processes int) {
	q.share = q.gap * time.Duration(max(1, min(processes, 1_000_000)))
}

// Arrive notes that an attempt wants a slot; once for each.
func (q *Quota) Arrive() { q.arrivals++ }

// Take takes a slot, if there is one now. Otherwise the attempt waits: Next
// says until when at most, and Wanted that a lease is worth asking for.
func (q *Quota) Take(now time.Duration) bool {
	q.drop(now)
	if q.rests.n > 0 && q.rests.at <= now {
		q.state.Leased++
		q.rests.use()
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
			q.charge++
		}
		return true
	}
	if q.fleet && q.wantedAt == never {
		q.wantedAt = now
	}
	return false
}

// GiveBack returns the slot of an attempt that was not sent after all.
func (q *Quota) GiveBack(now time.Duration) {
	if q.fleet {
		q.charge--
		return
	}
	q.ownAt = max(q.ownAt-q.share, now-quotaCatchUp)
}

func (q *Quota) useLease() {
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
func (q *Quota) drop(now time.Duration) {
	for q.rests.n > 0 && q.rests.at+max(leaseKeep, q.rests.gap) < now {
		q.expire()
	}
	for len(q.leases) > 0 && q.leases[0].at+leaseKeep < now {
		q.state.Expired++
		q.charge--
		q.useLease()
	}
}

// expire gives back a slot of the reserve.
func (q *Quota) expire() {
	q.state.Expired++
	q.charge--
	q.rests.use()
}

// useOwn takes a slot of our own share.
func (q *Quota) useOwn(now time.Duration) bool {
	if q.fleet {
		late := q.late(now)
		if late && !q.exposed && !(q.slack && q.share <= ownAhead) {
			// All processes lose the answers at once: they begin apart.
			q.ownAt = max(q.ownAt, now+upTo(q.rand, q.share))
		}
		q.exposed = late
		if !late && !q.spare() {
			return false
		}
	}
	if q.ownAt > now {
		return false
	}
	q.ownAt = max(q.ownAt, now-quotaCatchUp) + q.share
	return true
}

// spare says whether our own share may be used without asking.
func (q *Quota) spare() bool {
	return q.slack && q.rests.gap == 0 && q.share <= ownAhead && q.charge < q.untold()
}

// untold is how many slots of our own share are used before that is told.
func (q *Quota) untold() int { return max(ownUntold, int(untoldFor/q.share)) }

// late says whether an answer is missing.
func (q *Quota) late(now time.Duration) bool {
	return q.failed || q.wantedAt != never && now-max(q.wantedAt, q.rests.to) >= quotaPatience
}

// Next is when Take may say yes without anything else happening.
func (q *Quota) Next(now time.Duration) time.Duration {
	at := max(q.ownAt, now)
	if q.fleet && !q.late(now) && !q.spare() {
		at = Forever
		if q.wantedAt != never {
			at = max(q.wantedAt, q.rests.to) + quotaPatience
		}
	}
	if q.rests.n > 0 {
		at = min(at, max(q.rests.at, now))
	}
	if len(q.leases) > 0 {
		at = min(at, max(q.leases[0].at, now))
	}
	return at
}

// Pace is about how long it takes from one slot to the next, for who waits.
func (q *Quota) Pace() time.Duration {
	if !q.fleet || q.slack {
		return q.gap
	}
	return time.Duration(float64(time.Second) / max(q.served, float64(time.Second)/float64(q.share)))
}

// Idle says that a new Quota would grant no slot earlier than this one, and that
// there is nothing to tell.
func (q *Quota) Idle(now time.Duration) bool {
	q.drop(now)
	return q.ownAt+quotaCatchUp <= now && len(q.leases) == 0 && q.rests.n == 0 && q.charge == 0 && (!q.fleet || q.arrivals == 0)
}

// State gives the counts.
func (q *Quota) State() QuotaState { return q.state }

// QuotaAsk is a question for slots.
type QuotaAsk struct {
	Key    uint64        // whose quota, the same in all processes
	Gap    time.Duration // between two slots
	Want   int           // slots wanted
	Charge int           // slots used without asking; below 0: leased ones not used

	Share time.Duration // between two slots of the process's own share
	Rate  float64       // slots that it is likely to need, a second
	Owed  float64       // of its share, a part of a slot that it did not get before
	Every time.Duration // it does not ask again before that
}

// Shares is how many slots of its share the process has in a rest.
func (a *QuotaAsk) Shares(rest time.Duration) float64 {
	return rest.Seconds()/max(a.Share, a.Gap, 1).Seconds() + a.Owed
}

// QuotaGrant is the answer.
type QuotaGrant struct {
	Slots int // 0 to QuotaAsk.Want
	// Ahead is how far ahead slots were given out already: the first of these
	// begins then, from now, and the others follow a gap apart. The further, the
	// more the fleet wants.
	Ahead time.Duration
	// Rest is how long the process does not ask again, and Reserved how many
	// slots it has evenly over that time, beside the others.
	Rest     time.Duration
	Reserved int
}

// Due says when Ask is worth calling, with so many waiting for a slot: at once,
// at a time, or Forever.
func (q *Quota) Due(now time.Duration, waiting int) time.Duration {
	if !q.fleet || q.charge == 0 && q.arrivals == 0 && waiting == 0 && len(q.leases) == 0 && q.rests.n == 0 {
		return Forever
	}
	return max(q.askAt, now)
}

// Ask makes the question that is due, with so many waiting for a slot.
func (q *Quota) Ask(now time.Duration, waiting int) QuotaAsk {
	q.drop(now)
	first := q.askedAt == never || now-q.askedAt > QuotaRestMost
	q.measure(now)
	for q.rests.n > 0 {
		q.expire() // the answer has those that are needed
	}
	a := QuotaAsk{Gap: q.gap, Want: q.want(now, waiting), Share: q.share, Rate: q.rate, Owed: q.owed}
	if first && waiting > 0 {
		a.Rate = float64(time.Second) / float64(q.share) // it is not known yet
	}
	if most := int(QuotaHorizon/q.gap) + 1; q.charge > most {
		q.charge = most // what an absent engine was not told is over
	}
	a.Charge, q.charge = q.charge, 0
	// While all want more than there is, each gets what has come together since somebody
	// asked before; so that this is not always the same, the times vary.
	q.askAt = now + QuotaAskEvery/2 + upTo(q.rand, QuotaAskEvery)
	if q.wantedAt == never {
		q.wantedAt = now
	}
	return a
}

// measure brings the rates up to date.
func (q *Quota) measure(now time.Duration) {
	used := q.state.Leased + q.state.Own
	if took := (now - q.askedAt).Seconds(); q.askedAt != never && took > 0 {
		weight := 1 - math.Exp(-took/arrivalsMean.Seconds())
		q.rate += (float64(q.arrivals)/took - q.rate) * weight
		q.served += (float64(used-q.used)/took - q.served) * weight
	}
	q.arrivals, q.used, q.askedAt = 0, used, now
}

// want is how many slots more are needed for those who wait and those who will
// come until the answer to the next question is there.
func (q *Quota) want(now time.Duration, waiting int) int {
	const ahead = 2 * QuotaAskEvery
	need := float64(waiting) + q.rate*ahead.Seconds()
	if q.spare() {
		need -= min(ahead.Seconds()/q.share.Seconds(), float64(q.untold()))
	}
	for _, l := range q.leases {
		need -= float64(l.n)
	}
	n := int(math.Round(min(need, float64(QuotaHorizon/q.gap)+1)))
	if waiting > 0 && len(q.leases) == 0 {
		n = max(n, 1)
	}
	return max(n, 0)
}

// Grant takes in the answer to a question. What is not plausible is believed as
// far as it is: no more slots than the horizon has.
func (q *Quota) Grant(now time.Duration, g QuotaGrant) {
	q.wantedAt, q.failed = never, false
	q.slack = g.Ahead < QuotaHorizon/2
	q.rest(now, g)
	begin := max(0, min(g.Ahead, QuotaHorizon))
	if n := min(g.Slots, int(QuotaHorizon/q.gap)+1); n > 0 && len(q.leases) < maxLeases {
		q.leases = append(q.leases, lease{now + begin, n})
	}
	if wait := min(g.Ahead-QuotaHorizon, QuotaHorizon); wait > QuotaAskEvery {
		q.askAt = max(q.askAt, now+wait) // before that, there is nothing to be had
	}
}

// rest takes in the part of an answer that is for the time until the next question. Of
// all who were told at once each begins at another time.
func (q *Quota) rest(now time.Duration, g QuotaGrant) {
	long := min(g.Rest, QuotaRestMost)
	q.rests = reserve{}
	if long <= QuotaAskEvery {
		return
	}
	q.rests.to = now + long - QuotaAskEvery/2 + upTo(q.rand, QuotaAskEvery)
	q.askAt = max(q.askAt, q.rests.to)
	q.rests.gap = long
	q.owed = max(0, min(long.Seconds()/q.share.Seconds()+q.owed-float64(g.Reserved), 1))
	if n := min(g.Reserved, int(QuotaRestMost/q.gap)); n > 0 {
		q.rests.gap, q.rests.n = long/time.Duration(n), n
		q.rests.at = now + upTo(q.rand, q.rests.gap)
	}
}

// maxLeases bounds what is kept; at one question each 50 ms and slots kept for
// 200 ms at most there are never more than a few.
const maxLeases = 16

// Fail notes that a question had no answer. Our own share is used until there
// is one.
func (q *Quota) Fail() { q.failed, q.wantedAt = true, never }
