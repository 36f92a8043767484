package ratelimit

import "time"

// Learn processes what a response says. s is the Stamp of its attempt. If a rate limit rejected the
// attempt, its cost must have been given back before.
func (q *Buckets) Learn(now time.Duration, s *Stamp, r Reading, rejected bool) {
	if !(r.Limit > 0) || !(r.Remaining >= 0) || r.Limit > maxLimit || r.Reset < 0 {
		return
	}
	r.Remaining, r.Reset = min(r.Remaining, r.Limit), min(r.Reset, maxReset)
	b := q.find(r.Row)
	if b == nil {
		q.begin(now, s, &r)
		return
	}
	b.advance(now)
	if b.limit != r.Limit || b.model != r.Model {
		b.limit, b.model, b.rate, b.nextRate, b.level = r.Limit, r.Model, 0, 0, min(b.level, r.Limit)
	}
	if r.windowIsOver() {
		if s.order >= b.seen {
			b.seen = s.order
			b.renew(q.sentSince(s, r.Kind))
		}
		return
	}
	b.learnReset(now, s, &r)
	if rejected { // the level at which it was sent was too high
		b.seen = max(b.seen, s.order)
		b.move(min(0, r.Remaining-b.level))
		return
	}
	if s.order < b.seen {
		return
	}
	b.seen = s.order
	if b.isFull(s, &r) {
		return
	}
	b.told, b.toldFrom, b.toldAt = r.Remaining, s.at, now
	b.correct(r.Remaining, s)
}

// maxLimit limits the values of headers.
const maxLimit = 1e12

func (q *Buckets) find(row uint8) *bucket {
	for i := range q.all[:q.n] {
		if q.all[i].row == row && !q.all[i].fixed {
			return &q.all[i]
		}
	}
	return nil
}

// sentSince returns what was sent after the attempt of s. Its response does not include that yet.
func (q *Buckets) sentSince(s *Stamp, k Kind) float64 { return max(0, q.sent[k]-s.sent[k]) }

// begin adds a rate limit.
func (q *Buckets) begin(now time.Duration, s *Stamp, r *Reading) {
	if q.n == MaxBuckets {
		return
	}
	since := q.sentSince(s, r.Kind)
	since = min(since, q.usage.bound(r.Kind, since)) // estimated without knowing how the upstream counts
	b := &q.all[q.n]
	q.n++
	*b = bucket{row: r.Row, kind: r.Kind, model: r.Model, limit: r.Limit, level: max(0, r.Remaining-since), at: now, seen: s.order, taken: q.order, takenAt: now, rateSince: now}
	b.told, b.toldFrom, b.toldAt = r.Remaining, s.at, now
	if r.windowIsOver() {
		b.renew(since)
		return
	}
	b.learnReset(now, s, r)
}

// isFull reports whether a response says that a bucket is full by now, and nothing was sent since its
// attempt. What is left by its other header is of no interest then.
func (b *bucket) isFull(s *Stamp, r *Reading) bool {
	return r.Model == Refilling && r.Reset == 0 && s.order >= b.taken
}

// windowIsOver reports whether a window ends now or ended before. What is left of it is of no
// interest any more.
func (r *Reading) windowIsOver() bool { return r.Model == Windowed && r.Reset == 0 }

// renew begins a window whose end is unknown. since was sent in it already.
func (b *bucket) renew(since float64) {
	before := b.level
	b.level, b.until, b.free = max(0, b.limit-since), 0, 0
	b.corrected += b.level - before
}

// learnReset processes the time of the reset. For a Refilling bucket it yields the rate. Resets are
// rounded up and may count from now or from when the attempt was sent. So the rate is a lower
// bound, and the highest one of the last minute or two counts.
func (b *bucket) learnReset(now time.Duration, s *Stamp, r *Reading) {
	b.length = max(b.length, r.Reset)
	if b.model == Windowed {
		b.until = now + r.Reset
		b.free = min(b.free, b.until)
		return
	}
	if s.order >= b.taken { // nothing was sent since
		b.fullAt = now + r.Reset
	}
	if b.isFull(s, r) {
		b.corrected += b.limit - b.level
		b.level = b.limit
	}
	used := r.Limit - r.Remaining
	if used <= 0 {
		return
	}
	reset := r.Reset
	if reset == 0 { // less than a second, rounded down
		reset = time.Second
	}
	rate := used / (reset + max(now-s.at, 0)).Seconds()
	if now-b.rateSince >= ratePeriod {
		b.rate, b.nextRate, b.rateSince = b.nextRate, 0, now
	}
	b.nextRate = max(b.nextRate, rate)
	b.rate = max(b.rate, rate)
}

// correct moves the level towards what a response said. The upstream wrote that between the time
// the attempt was sent and now. In the first case the level at sending differs, in the second the
// level now.
func (b *bucket) correct(remaining float64, s *Stamp) {
	difference := remaining - b.level
	for i := range s.rows[:s.n] {
		if s.rows[i] != b.row {
			continue
		}
		sending := remaining - (s.level[i] + b.corrected)
		switch {
		case sending > 0 && difference > 0:
			difference = min(sending, difference)
		case sending < 0 && difference < 0:
			difference = max(sending, difference)
		default:
			return
		}
	}
	if difference > 0 {
		difference *= goodNews
	}
	b.move(difference)
}

// move corrects the level.
func (b *bucket) move(difference float64) {
	before := b.level
	b.level = max(0, min(b.limit, b.level+difference))
	b.corrected += b.level - before
	if b.model == Refilling {
		b.others = max(0, min(b.perSecond(), b.others-(b.level-before)/othersTime.Seconds()))
	}
}
