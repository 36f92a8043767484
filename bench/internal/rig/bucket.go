package rig

import "time"

// Bucket is a rate limit. It fills at Rate a second, up to Capacity. It is not safe for concurrent use.
type Bucket struct {
	Rate, Capacity, Level float64
	at                    time.Time // when Level was right
}

// NewBucket returns a full one.
func NewBucket(rate, capacity float64, now time.Time) *Bucket {
	return &Bucket{Rate: rate, Capacity: capacity, Level: capacity, at: now}
}

// Fill adds what came until now.
func (b *Bucket) Fill(now time.Time) {
	b.Level = min(b.Capacity, b.Level+b.Rate*now.Sub(b.at).Seconds())
	b.at = now
}

// Until returns how long it takes until the level is n; 0 if it is now.
func (b *Bucket) Until(n float64) time.Duration {
	return time.Duration(max(0, n-b.Level) / b.Rate * float64(time.Second))
}

// Take takes n if the level is that high, and returns 0. Otherwise it returns how long that takes.
func (b *Bucket) Take(n float64, now time.Time) time.Duration {
	b.Fill(now)
	wait := b.Until(n)
	if wait == 0 {
		b.Level -= n
	}
	return wait
}
