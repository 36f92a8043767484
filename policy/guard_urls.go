package policy

import (
	"sync/atomic"
	"time"
)

// urls knows which URLs of the upstream were answered lately, and which are silent. One
// URL that hangs or fails is no evidence about the upstream as a whole while another
// one was answered and is not known to hang or fail too. On an upstream of much
// traffic that other one is asked for all the time, so its responses speak for
// themselves. On one of little traffic a silence is judged only when it was tried.
type urls struct {
	sampleAt  atomic.Int64 // when the URL of a response is worth knowing next
	responded [8]urlSeen
	stalled   [4]urlSeen // in the silence that lasts, see Guard.recordPending
}

type urlSeen struct {
	key  uint32
	at   time.Duration // when it was answered, or the request was sent that has no response
	from time.Duration // when its silence begins to tell
}

const (
	sampleEvery = 100 * time.Millisecond
	// responseSpeaksFor is how long a response speaks for other requests with its URL.
	responseSpeaksFor = 10 * time.Second
	// littleTraffic is how many usual answers a silence has to lack to tell by itself,
	// where one URL is known to be silent; minTraffic where none is. With more there,
	// each of fifty proxies would send one request more to an upstream that stopped.
	littleTraffic = 10
	minTraffic    = 4
)

// WantsKey reports whether AttemptEnd.Key of a good response is of use now.
func (g *Guard) WantsKey(now time.Duration) bool {
	return g.mode.Load() != 0 || int64(now) >= g.urls.sampleAt.Load()
}

// sample notes the URL of a good response that left by the fast path.
func (g *Guard) sample(now time.Duration, key uint32) {
	if g.mu.TryLock() {
		g.urls.recordResponse(now, key)
		g.mu.Unlock()
	}
}

// recordResponse notes a URL that was answered.
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

// recordFailure notes a URL that failed.
func (u *urls) recordFailure(key uint32) {
	for i := range u.responded {
		if u.responded[i].key == key {
			u.responded[i] = urlSeen{}
		}
	}
}

// recordPending notes a URL of which a request was sent at a time and not answered by
// another, in the silence that began at since.
func (u *urls) recordPending(since, sent, from time.Duration, key uint32) {
	var free *urlSeen
	for i := range u.stalled {
		switch s := &u.stalled[i]; {
		case s.key == key && s.at >= since && key != 0:
			s.from = min(s.from, from)
			return
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

// stalledSince is how many URLs are known to be silent since a time.
func (u *urls) stalledSince(since, now time.Duration) (n int) {
	for _, s := range u.stalled {
		if s.key != 0 && s.at >= since && now >= s.from {
			n++
		}
	}
	return n
}

// respondedLately reports whether a URL was answered lately.
func (u *urls) respondedLately(now time.Duration, key uint32) bool {
	for _, s := range u.responded {
		if s.key == key && key != 0 && now-s.at <= responseSpeaksFor {
			return true
		}
	}
	return false
}

// anotherResponds reports whether a URL was answered lately for which but does not hold.
func (u *urls) anotherResponds(now time.Duration, but func(key uint32) bool) bool {
	for _, s := range u.responded {
		if s.key != 0 && now-s.at <= responseSpeaksFor && !but(s.key) {
			return true
		}
	}
	return false
}

// oneURLStalled reports whether a silence may be that of one URL: on an upstream of
// little traffic, while another one was answered before and not tried since.
func (g *Guard) oneURLStalled(now time.Duration) bool {
	since := g.stall.lastResponseAt
	return g.littleTraffic(now) &&
		g.urls.anotherResponds(now, func(key uint32) bool { return g.urls.isStalled(since, now, key) })
}

// littleTraffic reports whether few answers are missing in a silence, and at most one
// URL is known to be silent.
func (g *Guard) littleTraffic(now time.Duration) bool {
	lacking := g.baseline.rate * downAfter(&g.baseline).Seconds()
	switch g.urls.stalledSince(g.stall.lastResponseAt, now) {
	case 0:
		return lacking < minTraffic
	case 1:
		return lacking < littleTraffic
	}
	return false
}

// admitsTrial reports whether a request is let through while suspect, once, because it is of use to
// know whether it is answered: its URL was answered before.
func (g *Guard) admitsTrial(now time.Duration, r Request) bool {
	return g.suspect.on && !g.suspect.trialUsed && g.littleTraffic(now) && g.urls.respondedLately(now, r.Key) &&
		!r.Unfinished && !g.atFixedLimit() && !g.urls.isStalled(g.stall.lastResponseAt, now, r.Key)
}
