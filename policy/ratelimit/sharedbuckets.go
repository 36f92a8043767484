package ratelimit

import "time"

// Account is what a process shares of its Buckets with the other processes: what it used, what it
// learned, and what it wants next. In production a script in the engine keeps the common Buckets; a
// test compares the script with type Buckets.
type Account struct {
	Fixed   Rate // the configured limit; the zero value: none
	Probe   time.Duration
	Sent    Charge // used without asking since the last Account; below 0: given back
	Settled Cost   // what attempts used beyond the expected cost; for configured limits
	Learnt  []Observation
	Counting

	Next *Cost // of the attempt that waits to be sent; nil: none does
}

// Counting is what a process learned of how the upstream counts.
type Counting struct {
	Usage UsageNews
	Soon  time.Duration // see Buckets.Soon
}

// Charge is the cost of some attempts.
type Charge struct {
	Attempts int64
	Cost
}

// of returns the part of the charge that a rate limit counts.
func (c Charge) of(k Kind) float64 {
	if k == Requests {
		return float64(c.Attempts)
	}
	return c.Cost.of(k)
}

// Add adds attempts of the same cost; a negative number removes them.
func (c *Charge) Add(attempts int64, each Cost) {
	c.Attempts += attempts
	c.Input += attempts * each.Input
	c.Output += attempts * each.Output
}

// Observation is what a response said, with the Stamp of its attempt.
type Observation struct {
	Reading
	Stamp    Stamp
	Took     time.Duration // from sending to the response
	Rejected bool
}

// Level returns the level, without corrections, after the attempt was taken. ok is false if the
// rate limit was unknown at that time.
func (o *Observation) Level() (level float64, ok bool) {
	for i := range o.Stamp.rows[:o.Stamp.n] {
		if o.Stamp.rows[i] == o.Row {
			return o.Stamp.level[i], true
		}
	}
	return 0, false
}

// Since returns how long ago the attempt was sent.
func (s *Stamp) Since(now time.Duration) time.Duration { return max(now-s.at, 0) }

// Order returns the order of the attempt among all attempts of the fleet.
func (o *Observation) Order() uint64 { return o.Stamp.order }

// Balance is the response to an Account.
type Balance struct {
	Granted bool          // the attempt may be sent, and its cost was taken
	Wait    time.Duration // otherwise: when to ask again
	Order   uint64        // of the following attempts, in microseconds
	Usage   UsageState
	Buckets []BucketState
}

// BucketState is what the processes share about one rate limit. Times are relative to now; below 0
// means none.
type BucketState struct {
	Row                            uint8
	Kind                           Kind
	Model                          Model
	Limit, Level, Rate, Others     float64
	Corrected                      float64
	FullIn, EndsIn, FreeIn, Length time.Duration
}

// Import replaces the own knowledge with that of all processes. Of a configured limit only the level
// is taken.
func (q *Buckets) Import(now time.Duration, b *Balance) {
	n := 0
	if q.n > 0 && q.all[0].fixed {
		n = 1
	}
	q.n = n
	for i := range b.Buckets {
		s := &b.Buckets[i]
		if q.n == MaxBuckets || !(s.Limit > 0) || s.Limit > maxLimit || s.Kind >= NumKinds || !(s.Level >= 0) || s.Level > s.Limit {
			continue
		}
		if s.Row == fixedRow {
			if n > 0 {
				q.all[0].level, q.all[0].at = min(s.Level, q.all[0].limit), now
			}
			continue
		}
		at := func(in time.Duration) time.Duration {
			if in < 0 {
				return 0
			}
			return now + min(in, maxReset)
		}
		q.all[q.n] = bucket{
			row: s.Row, kind: s.Kind, model: s.Model, limit: s.Limit, level: s.Level, at: now,
			rate: max(s.Rate, 0), others: max(s.Others, 0), corrected: s.Corrected, rateSince: now,
			taken: b.Order, takenAt: now, fullAt: at(s.FullIn), until: at(s.EndsIn), free: at(s.FreeIn), length: min(max(s.Length, 0), maxReset),
		}
		q.n++
	}
	q.order, q.orderAt = max(q.order, b.Order), now
	q.importUsage(&b.Usage)
}

// Plenty reports whether an attempt can be sent without asking: even if every process sent it, and as
// much as this one sent without asking (sent), half of each limit would be left.
func (q *Buckets) Plenty(now time.Duration, c Cost, sent Charge, processes int) bool {
	for i := range q.all[:q.n] {
		b := &q.all[i]
		b.advance(now)
		others := (b.cost(c) + max(sent.of(b.kind), 0)) * float64(processes-1)
		if b.level-b.cost(c)-others < b.limit/2 {
			return false
		}
	}
	return true
}

// Plus returns the sum of c and d.
func (c Charge) Plus(d Charge) Charge {
	return Charge{c.Attempts + d.Attempts, c.Cost.Plus(d.Cost)}
}

// times returns the cost of n attempts. If this process has an nth of the Buckets, an attempt takes
// that.
func (c Charge) times(n int) Charge {
	return Charge{c.Attempts * int64(n), Cost{c.Input * int64(n), c.Output * int64(n)}}
}

// NextShare is Next for one of several processes without the engine: each has its part of all
// limits.
func (q *Buckets) NextShare(now time.Duration, c Cost, processes int) time.Duration {
	at, all := now, Charge{1, c}.times(max(processes, 1))
	for i := range q.all[:q.n] {
		b := &q.all[i]
		at = max(at, min(b.ready(now, min(all.of(b.kind), b.limit)), q.probeAt(b)))
	}
	return at
}

// TakeShare is Take for one of several processes without the engine.
func (q *Buckets) TakeShare(now time.Duration, c Cost, processes int) Stamp {
	all := Charge{1, c}.times(max(processes, 1))
	for i := range q.all[:q.n] {
		b := &q.all[i]
		b.take(now, min(all.of(b.kind), b.limit))
	}
	return q.stamp(now)
}

// Granted returns the Stamp of an attempt that a Balance granted.
func (q *Buckets) Granted(now time.Duration) Stamp { return q.stamp(now) }
