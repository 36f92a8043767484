package policy

import (
	"sync/atomic"
	"time"
)

// urls knows which URLs of the upstream were answered lately, and which are silent. One
// URL that hangs or fails is no evidence about the upstream as a whole while another
// one was answered and is not known to hang or fail too. On an upstream of much
// traffic that other one is asked for all the time, so its answers speak for
// themselves. On one of little traffic a silence is judged only when it was tried.
type urls struct {
	sampleAt atomic.Int64 // when the URL of an answer is worth knowing next
	answered [8]urlSeen
	silent   [4]urlSeen // in the silence that lasts, see Guard.wentSilent
}

type urlSeen struct {
	key  uint32
	at   time.Duration // when it was answered, or the request was sent that has no answer
	from time.Duration // when its silence begins to tell
}

const (
	sampleEvery = 100 * time.Millisecond
	// answeredFor is how long an answer speaks for other requests with its URL.
	answeredFor = 10 * time.Second
	// littleTraffic is how many usual answers a silence has to lack to tell by itself,
	// where one URL is known to be silent; leastTraffic where none is. With more there,
	// each of fifty proxies would send one request more to an upstream that stopped.
	littleTraffic = 10
	leastTraffic  = 4
)

// WantsKey reports whether Ending.Key of a good answer is of use now.
func (g *Guard) WantsKey(now time.Duration) bool {
	return g.mode.Load() != 0 || int64(now) >= g.urls.sampleAt.Load()
}

// sample notes the URL of a good answer that left by the fast path.
func (g *Guard) sample(now time.Duration, key uint32) {
	if g.mu.TryLock() {
		g.urls.wentWell(now, key)
		g.mu.Unlock()
	}
}

// wentWell notes a URL that was answered.
func (u *urls) wentWell(now time.Duration, key uint32) {
	if key == 0 {
		return
	}
	u.sampleAt.Store(int64(now + sampleEvery))
	oldest := &u.answered[0]
	for i := range u.answered {
		if s := &u.answered[i]; s.key == key {
			s.at = now
			return
		} else if s.key == 0 || oldest.key != 0 && s.at < oldest.at {
			oldest = s
		}
	}
	*oldest = urlSeen{key: key, at: now}
}

// wentWrong notes a URL that failed.
func (u *urls) wentWrong(key uint32) {
	for i := range u.answered {
		if u.answered[i].key == key {
			u.answered[i] = urlSeen{}
		}
	}
}

// wentSilent notes a URL of which a request was sent at a time and not answered by
// another, in the silence that began at since.
func (u *urls) wentSilent(since, sent, from time.Duration, key uint32) {
	var free *urlSeen
	for i := range u.silent {
		switch s := &u.silent[i]; {
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

// isSilent reports whether a URL is known to be silent since a time.
func (u *urls) isSilent(since, now time.Duration, key uint32) bool {
	for _, s := range u.silent {
		if s.key == key && s.at >= since && now >= s.from {
			return true
		}
	}
	return false
}

// silentSince is how many URLs are known to be silent since a time.
func (u *urls) silentSince(since, now time.Duration) (n int) {
	for _, s := range u.silent {
		if s.key != 0 && s.at >= since && now >= s.from {
			n++
		}
	}
	return n
}

// speaks reports whether a URL was answered lately.
func (u *urls) speaks(now time.Duration, key uint32) bool {
	for _, s := range u.answered {
		if s.key == key && key != 0 && now-s.at <= answeredFor {
			return true
		}
	}
	return false
}

// another reports whether a URL was answered lately for which but does not hold.
func (u *urls) another(now time.Duration, but func(key uint32) bool) bool {
	for _, s := range u.answered {
		if s.key != 0 && now-s.at <= answeredFor && !but(s.key) {
			return true
		}
	}
	return false
}

// oneURLSilent reports whether a silence may be that of one URL: on an upstream of
// little traffic, while another one was answered before and not tried since.
func (g *Guard) oneURLSilent(now time.Duration) bool {
	since := g.silence.brokenAt
	return g.littleTraffic(now) &&
		g.urls.another(now, func(key uint32) bool { return g.urls.isSilent(since, now, key) })
}

// littleTraffic reports whether few answers are missing in a silence, and at most one
// URL is known to be silent.
func (g *Guard) littleTraffic(now time.Duration) bool {
	lacking := g.usual.rate * downAfter(&g.usual).Seconds()
	switch g.urls.silentSince(g.silence.brokenAt, now) {
	case 0:
		return lacking < leastTraffic
	case 1:
		return lacking < littleTraffic
	}
	return false
}

// tries reports whether a request is let through in doubt, once, because it is of use to
// know whether it is answered: its URL was answered before.
func (g *Guard) tries(now time.Duration, r Request) bool {
	return g.doubt.on && !g.doubt.tried && g.littleTraffic(now) && g.urls.speaks(now, r.Key) &&
		!r.Unfinished && !g.full() && !g.urls.isSilent(g.silence.brokenAt, now, r.Key)
}
