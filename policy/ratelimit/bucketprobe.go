package ratelimit

import (
	"math"
	"time"
)

// probeAt returns when an attempt may be sent although the bucket has not enough.
func (q *Buckets) probeAt(b *bucket) time.Duration {
	if b.fixed || q.Probe == 0 || b.seen < b.taken { // a response may still say more
		return q.lastProbeAt(b)
	}
	return b.takenAt + q.probeEvery(b)
}

// lastProbeAt returns when an attempt may be sent whatever is left, and without a response to the
// last one.
func (q *Buckets) lastProbeAt(b *bucket) time.Duration {
	if b.fixed || q.Probe == 0 {
		return math.MaxInt64
	}
	return b.takenAt + q.Probe
}

// probeEvery returns after how long without an attempt one is sent. That is soon if something is
// left, and only an estimate says that it is not enough.
func (q *Buckets) probeEvery(b *bucket) time.Duration {
	if b.kind == Requests || b.level < b.limit*bucketReserve {
		return q.Probe
	}
	return q.Soon()
}

// Soon returns after how long without an attempt one is sent if only an estimate stops it; 0: never.
// It is the longer, the more often the upstream agreed with the estimate.
func (q *Buckets) Soon() time.Duration {
	return min(q.Probe, soonProbe+time.Duration(q.usage.doubt*float64(q.Probe)))
}

// probesAt returns when that many attempts can have been sent although the bucket has not enough.
func (q *Buckets) probesAt(b *bucket, now time.Duration, attempts int) time.Duration {
	if b.fixed || q.Probe == 0 {
		return math.MaxInt64
	}
	every := q.probeEvery(b)
	return max(now, b.takenAt+every) + every*time.Duration(attempts-1)
}

// outdated reports whether an attempt is a probe, and the last one said nothing of the limit.
func (q *Buckets) outdated(b *bucket, now time.Duration, c Cost) bool {
	return now >= q.lastProbeAt(b) && b.seen < b.taken && b.ready(now, b.cost(c)) > now
}

// forget removes the limits that are outdated when an attempt is sent.
func (q *Buckets) forget(now time.Duration, c Cost) {
	for i := q.n - 1; i >= 0; i-- {
		if q.outdated(&q.all[i], now, c) {
			q.n--
			q.all[i] = q.all[q.n]
		}
	}
}
