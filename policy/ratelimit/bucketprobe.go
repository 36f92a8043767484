package ratelimit

import (
	"math"
	"time"
)

// probeAt returns when an attempt may be sent although the bucket has not enough.
func (q *Buckets) probeAt(b *bucket) time.Duration {
	if b.fixed || q.Probe == 0 {
		return math.MaxInt64
	}
	return b.takenAt + q.Probe
}

// outdated reports whether an attempt is a probe, and the last one said nothing of the limit.
func (q *Buckets) outdated(b *bucket, now time.Duration, cost float64) bool {
	return now >= q.probeAt(b) && b.seen < b.taken && b.ready(now, cost) > now
}

// forget removes the limits that are outdated when an attempt is sent.
func (q *Buckets) forget(now time.Duration, c Cost) {
	for i := q.n - 1; i >= 0; i-- {
		if b := &q.all[i]; q.outdated(b, now, c.of(b.kind)) {
			q.n--
			q.all[i] = q.all[q.n]
		}
	}
}
