package breaker

import (
	"sync/atomic"
	"time"
)

// urls records which URLs of the upstream were answered recently, and which are silent. One
// URL that hangs or fails is no evidence about the upstream as a whole while another one
// was answered and is not known to hang or fail. With much traffic the other one is
// requested all the time, so its responses show the upstream's state. With little traffic a
// silence counts only after the other one was tried.
type urls struct {
	sampleAt  atomic.Int64 // when the URL of a response is recorded next
	responded [8]urlSeen
	stalled   [4]urlSeen // in the current silence, see silence.admitted
}

type urlSeen struct {
	key  uint32
	at   time.Duration // when it was answered, or when the unanswered request was sent
	from time.Duration // when its silence begins to count
}

const (
	sampleEvery = 100 * time.Millisecond
	// responseValidFor is how long a response is evidence for other requests with its URL.
	responseValidFor = 10 * time.Second
	// littleTraffic is how many usual responses must be missing for a silence to count by
	// itself if one URL is known to be silent; minTraffic applies if none is. Higher values
	// would make each of fifty proxies send one more request to a stopped upstream.
	littleTraffic = 10
	minTraffic    = 4
)

// recordResponse records a URL that was answered.
func (u *urls) recordResponse(now time.Duration, key uint32) {
	if key == 0 {
		return
	}
	u.sampleAt.Store(int64(now + sampleEvery))
	oldest := &u.responded[0]
	for i := range u.responded {
		if s := &u.responded[i]; s.key == key {
			s.at = now
			return
		} else if s.key == 0 || oldest.key != 0 && s.at < oldest.at {
			oldest = s
		}
	}
	*oldest = urlSeen{key: key, at: now}
}

// recordFailure records a URL that failed.
func (u *urls) recordFailure(key uint32) {
	for i := range u.responded {
		if u.responded[i].key == key {
			u.responded[i] = urlSeen{}
		}
	}
}

// recordPending records a URL with a request sent at sent and not answered, in the silence
// that began at since. It counts as stalled from the time from.
func (u *urls) recordPending(since, sent, from time.Duration, key uint32) {
	var free *urlSeen
	for i := range u.stalled {
		switch s := &u.stalled[i]; {
		case s.key == key && s.at >= since && key != 0:
			return // the first request is the oldest
		case s.key == 0 || s.at < since:
			free = s
		}
	}
	if free != nil {
		*free = urlSeen{key, sent, from}
	}
}

// isStalled reports whether a URL is known to be silent since a time.
func (u *urls) isStalled(since, now time.Duration, key uint32) bool {
	for _, s := range u.stalled {
		if s.key == key && s.at >= since && now >= s.from {
			return true
		}
	}
	return false
}

// stalledSince returns the number of URLs known to be silent since a time.
func (u *urls) stalledSince(since, now time.Duration) (n int) {
	for _, s := range u.stalled {
		if s.key != 0 && s.at >= since && now >= s.from {
			n++
		}
	}
	return n
}

// respondedLately reports whether a URL was answered recently.
func (u *urls) respondedLately(now time.Duration, key uint32) bool {
	for _, s := range u.responded {
		if s.key == key && key != 0 && now-s.at <= responseValidFor {
			return true
		}
	}
	return false
}

// anotherResponds reports whether a URL other than those excluded by but was answered
// recently.
func (u *urls) anotherResponds(now time.Duration, but func(key uint32) bool) bool {
	for _, s := range u.responded {
		if s.key != 0 && now-s.at <= responseValidFor && !but(s.key) {
			return true
		}
	}
	return false
}
