package ratelimit

import (
	"math"
	"time"
)

// Kind is what a rate limit counts.
type Kind uint8

// The kinds, a closed set.
const (
	Requests Kind = iota
	Tokens        // input and output together
	InputTokens
	OutputTokens
	NumKinds
)

// Model is how a rate limit is replenished.
type Model uint8

// The models, a closed set.
const (
	// Refilling is a token bucket: it is refilled continuously, and a reset is when it is full.
	Refilling Model = iota
	// Windowed is replenished at once, at the end of a window, and a reset is that end.
	Windowed
)

// Cost is the expected use of an attempt, in addition to one request.
type Cost struct{ Input, Output int64 } // tokens

// of returns the part of the cost that a rate limit counts.
func (c Cost) of(k Kind) float64 {
	switch k {
	case Requests:
		return 1
	case InputTokens:
		return float64(c.Input)
	case OutputTokens:
		return float64(c.Output)
	}
	return float64(c.Input) + float64(c.Output)
}

// Plus returns the sum of c and d.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Input + d.Input, c.Output + d.Output} }

// Minus returns the difference of c and d.
func (c Cost) Minus(d Cost) Cost { return Cost{c.Input - d.Input, c.Output - d.Output} }

// AtMost returns c with no more than n tokens in all.
func (c Cost) AtMost(n int64) Cost {
	c.Input = min(c.Input, n)
	c.Output = min(c.Output, n-c.Input)
	return c
}

// Reading is what the headers of one response say about one rate limit.
type Reading struct {
	Row       uint8 // row of the headers; the same for each response
	Kind      Kind
	Model     Model
	Limit     float64       // above 0
	Remaining float64       // 0 to Limit
	Reset     time.Duration // 0 or more; see Model; 0: it is replenished by now, whatever Remaining says
}

// MaxBuckets is the maximum number of rate limits per key.
const MaxBuckets = 6

// Stamp is the state when an attempt was sent. It lets Learn separate what the attempt's response
// says from what happened afterwards.
type Stamp struct {
	order uint64
	at    time.Duration // when it was sent
	sent  [NumKinds]float64
	rows  [MaxBuckets]uint8
	level [MaxBuckets]float64 // without corrections
	n     uint8
}

// bucket is the knowledge about one rate limit.
type bucket struct {
	row   uint8
	kind  Kind
	model Model
	fixed bool // set by configuration: headers do not change it

	limit float64
	level float64       // what is left
	at    time.Duration // the time of level

	rate      float64       // Refilling: per second, a lower bound; 0: unknown
	nextRate  float64       // the highest rate since rateSince
	rateSince time.Duration // when nextRate began
	others    float64       // per second, used by others
	fullAt    time.Duration // Refilling: when it is full, by the last reset and what was sent since

	until  time.Duration // Windowed: when the window ends; 0: unknown
	length time.Duration // the longest reset received
	free   time.Duration // when the next attempt may be sent, if less than half is left

	told     float64       // what the newest response left
	toldFrom time.Duration // when its attempt was sent
	toldAt   time.Duration // when it came; 0: none did

	corrected float64 // sum of all corrections of level
	seen      uint64  // order of the newest attempt with a response
	taken     uint64  // order of the newest attempt sent
	takenAt   time.Duration
}

// Buckets holds the rate limits of one key, learned from headers (Learn) or set (Limit). Each
// attempt takes its cost from all of them.
//
// Levels are counted here and corrected by each response. Headers state what was left when the
// upstream wrote them, at some time between sending and receiving. A level is corrected only as far
// as every such time agrees with. That also reveals what others use of the same limit. Corrections
// downwards count in full. Corrections upwards count by a quarter, because requests that overtake
// each other look like them.
//
// It is not safe for concurrent use. now is monotonic time of any origin not below 0, with the same
// origin for all calls. Without a rate limit everything may be sent. The zero value is ready to
// use.
type Buckets struct {
	all [MaxBuckets]bucket
	n   int
	// Probe is after how long without an attempt one is sent, whatever learned limits say: only its
	// response can correct them. 0: never.
	Probe time.Duration

	sent  [NumKinds]float64 // costs of all attempts so far
	usage usage

	order   uint64        // of the last attempt, in microseconds
	orderAt time.Duration // when it was sent
}

const (
	// bucketReserve is the fraction of a limit that stays unused, because the upstream may count
	// slightly more. It costs that amount once, not continuously.
	bucketReserve = 0.02
	// goodNews is the fraction of an upward correction that applies at once.
	goodNews = 0.25
	// othersTime is the time constant of the use by others.
	othersTime = 3 * time.Second
	// minGain is the minimum fraction of a rate that is assumed, whatever others use.
	minGain = 0.05
	// ratePeriod is how long the highest observed rate stays valid, at least.
	ratePeriod = time.Minute
	// assumedPeriod is the assumed period of a limit while no header states it.
	assumedPeriod = time.Minute
	// maxReset is the longest reset that is accepted.
	maxReset = 31 * 24 * time.Hour
)

// Limit sets a rate limit of tokens from the configuration. Call it first.
func (q *Buckets) Limit(r Rate, now time.Duration) {
	q.all[0] = bucket{row: fixedRow, kind: Tokens, fixed: true, limit: float64(r.Count), level: float64(r.Count), at: now, rate: r.PerSecond()}
	q.n = 1
}

// fixedRow is the row of a configured limit.
const fixedRow = 255

// Known reports whether there is any rate limit.
func (q *Buckets) Known() bool { return q.n > 0 }

// advance brings the level to now.
func (b *bucket) advance(now time.Duration) {
	took := now - b.at
	if took <= 0 {
		return
	}
	b.at = now
	if b.model == Refilling {
		b.level = min(b.limit, b.level+b.gain()*took.Seconds())
		if b.fullAt > 0 && now >= b.fullAt {
			b.level = b.limit
		}
		return
	}
	if b.until > 0 && now >= b.until {
		b.level, b.until, b.free = b.limit, 0, 0
	}
}

// gain returns how fast the level rises, after what others use.
func (b *bucket) gain() float64 { return max(b.perSecond()-b.others, b.perSecond()*minGain) }

// perSecond returns how fast a bucket is refilled.
func (b *bucket) perSecond() float64 {
	if b.rate > 0 {
		return b.rate
	}
	return b.limit / assumedPeriod.Seconds()
}

// cost returns what an attempt takes. An attempt that costs more than the whole limit takes all of
// it: the upstream has to answer it.
func (b *bucket) cost(c Cost) float64 { return min(c.of(b.kind), b.limit) }

// need returns how much must be left for attempts of this total cost. It may be more than the limit
// if they are several.
func (b *bucket) need(cost float64) float64 {
	if cost == 0 {
		return 0
	}
	return max(min(cost+b.limit*bucketReserve, b.limit), cost)
}

// ready returns when attempts of this total cost can have been sent: now, or later.
func (b *bucket) ready(now time.Duration, cost float64) time.Duration {
	b.advance(now)
	short := b.need(cost) - b.level
	switch {
	case b.model == Refilling && short <= 1e-9:
		return now
	case b.model == Refilling:
		wait := seconds(short / b.gain())
		if b.fullAt > now && cost <= b.limit {
			wait = min(wait, b.fullAt-now)
		}
		return now + wait
	case short <= 1e-9 && (b.level > b.limit/2 || cost == 0):
		return now
	case short <= 1e-9:
		return max(now, b.free)
	}
	windows := math.Ceil(short/b.limit) - 1 // after the present one
	return max(b.until, now+time.Millisecond) + seconds(windows*max(b.length, time.Second).Seconds())
}

// seconds returns n seconds, rounded up, and maxReset at most.
func seconds(n float64) time.Duration {
	return time.Duration(math.Ceil(min(n, maxReset.Seconds()) * float64(time.Second)))
}

// take subtracts the cost.
func (b *bucket) take(now time.Duration, cost float64) {
	b.advance(now)
	if b.model == Windowed {
		if b.until == 0 {
			b.until = now + max(b.length, time.Second)
		}
		if b.level <= b.limit/2 && b.level > 0 {
			b.free = min(b.until, max(b.free, now)+time.Duration(min(cost/b.level, 1)*float64(b.until-now)))
		}
	}
	if b.fullAt > 0 && b.rate > 0 {
		b.fullAt = min(max(b.fullAt, now)+seconds(cost/b.rate), now+maxReset)
	}
	b.level = max(0, b.level-cost)
}

// Next returns when an attempt may be sent: now, or when Ready becomes true without another event.
func (q *Buckets) Next(now time.Duration, c Cost) time.Duration {
	at := now
	for i := range q.all[:q.n] {
		b := &q.all[i]
		at = max(at, min(b.ready(now, b.cost(c)), q.probeAt(b)))
	}
	return at
}

// Ready reports whether an attempt may be sent now.
func (q *Buckets) Ready(now time.Duration, c Cost) bool { return q.Next(now, c) <= now }

// Take counts an attempt that is sent now, whether it is Ready or not. The Stamp is for its
// response. A learned limit that was probed in vain is forgotten.
func (q *Buckets) Take(now time.Duration, c Cost) Stamp {
	q.forget(now, c)
	for i := range q.all[:q.n] {
		b := &q.all[i]
		b.take(now, b.cost(c))
	}
	for k := range q.sent {
		q.sent[k] += c.of(Kind(k))
	}
	return q.stamp(now)
}

// stamp returns the Stamp of an attempt with the next order.
func (q *Buckets) stamp(now time.Duration) Stamp {
	q.order += uint64(max((now-q.orderAt)/time.Microsecond, 1))
	q.orderAt = now
	s := Stamp{order: q.order, at: now, sent: q.sent, n: uint8(q.n)}
	for i := range q.all[:q.n] {
		q.all[i].taken, q.all[i].takenAt = q.order, now
		s.rows[i], s.level[i] = q.all[i].row, q.all[i].level-q.all[i].corrected
	}
	return s
}

// GiveBack returns the cost of an attempt that was not sent, or that the upstream rejected without
// counting it.
func (q *Buckets) GiveBack(now time.Duration, c Cost) {
	for i := range q.all[:q.n] {
		q.all[i].add(now, q.all[i].cost(c))
	}
	for k := range q.sent {
		q.sent[k] -= c.of(Kind(k))
	}
}

// add changes the level by n.
func (b *bucket) add(now time.Duration, n float64) {
	b.advance(now)
	b.level = max(0, min(b.limit, b.level+n))
}

// Settle replaces the expected cost of an attempt with what it used, and learns from that what others
// will use. For learned limits the headers replace the cost.
func (q *Buckets) Settle(now time.Duration, expected Cost, e Estimate, used Cost) {
	q.learnUsage(e, used)
	for i := range q.all[:q.n] {
		if b := &q.all[i]; b.fixed {
			b.add(now, b.cost(expected)-used.of(b.kind))
		}
	}
}

// Wait returns how long attempts of these costs together have to wait.
func (q *Buckets) Wait(now time.Duration, c Cost, attempts int) time.Duration {
	at := now
	for i := range q.all[:q.n] {
		b := &q.all[i]
		cost := min(c.of(b.kind), b.limit*float64(attempts))
		if b.kind == Requests {
			cost = float64(attempts)
		}
		at = max(at, min(b.ready(now, cost), q.probesAt(b, now, attempts)))
	}
	return at - now
}

// Idle reports whether the Buckets can be dropped without losing anything.
func (q *Buckets) Idle(now time.Duration) bool {
	for i := range q.all[:q.n] {
		b := &q.all[i]
		if b.advance(now); b.level < b.limit {
			return false
		}
	}
	return true
}

// TokensPerMinute returns the tokens per minute of the tightest limit that counts them; 0 if
// unknown.
func (q *Buckets) TokensPerMinute() (least float64) {
	for i := range q.all[:q.n] {
		b := &q.all[i]
		if b.kind == Requests || b.model == Refilling && b.rate == 0 || b.model == Windowed && b.length == 0 {
			continue
		}
		n := b.perSecond() * time.Minute.Seconds()
		if b.model == Windowed {
			n = b.limit / b.length.Minutes()
		}
		if least == 0 || n < least {
			least = n
		}
	}
	return least
}
