package main

import "time"

// bucket is a rate limit: it is filled at rate a second, up to capacity. It belongs to
// whoever holds the lock of the account.
type bucket struct {
	rate, capacity, level float64
	at                    time.Time // since when level is true
}

func newBucket(rate float64, now time.Time) *bucket {
	return &bucket{rate: rate, capacity: rate, level: rate, at: now}
}

func (b *bucket) fill(now time.Time) {
	b.level = min(b.capacity, b.level+b.rate*now.Sub(b.at).Seconds())
	b.at = now
}

// until returns how long it takes until the level is n. 0: it is now.
func (b *bucket) until(n float64) time.Duration {
	if b.level >= n {
		return 0
	}
	return time.Duration((n - b.level) / b.rate * float64(time.Second))
}

// full returns how long it takes until the bucket is full.
func (b *bucket) full() time.Duration { return b.until(b.capacity) }
