package main

import (
	"math"
	"time"
)

// rateLimit limit is what the upstream allows to all together. Not safe for concurrent use.
type rateLimit interface {
	// take says whether one more request is within the rate limit at a time, which
	// never goes back.
	take(now time.Time) bool
	// wait is how long one that was refused now had to wait at least.
	wait(now time.Time) time.Duration
}

// bucket holds up to burst tokens and gets perSecond of them in a second,
// evenly: within any time t, at most burst + t x perSecond requests.
type bucket struct {
	perSecond, burst float64
	tokens           float64
	at               time.Time // when tokens was right
}

func newBucket(perSecond, burst float64, now time.Time) *bucket {
	return &bucket{perSecond: perSecond, burst: burst, tokens: burst, at: now}
}

func (b *bucket) take(now time.Time) bool {
	b.tokens = min(b.tokens+b.perSecond*now.Sub(b.at).Seconds(), b.burst)
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

func (b *bucket) wait(time.Time) time.Duration {
	return time.Duration((1 - b.tokens) / b.perSecond * float64(time.Second))
}

// seconds counts anew in every second of the clock.
type seconds struct {
	most  int
	of    time.Time // the second that is counted
	taken int
}

func (s *seconds) take(now time.Time) bool {
	if of := now.Truncate(time.Second); !of.Equal(s.of) {
		s.of, s.taken = of, 0
	}
	if s.taken == s.most {
		return false
	}
	s.taken++
	return true
}

func (s *seconds) wait(now time.Time) time.Duration { return s.of.Add(time.Second).Sub(now) }

// unlimited allows everything.
type unlimited struct{}

func (unlimited) take(time.Time) bool          { return true }
func (unlimited) wait(time.Time) time.Duration { return 0 }

// retryAfter is a wait as the field wants it: whole seconds, and one at least.
func retryAfter(wait time.Duration) int { return max(1, int(math.Ceil(wait.Seconds()))) }
