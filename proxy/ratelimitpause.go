package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// RateLimitPauseKind says which requests share the pause that a 429 asks for.
type RateLimitPauseKind uint8

// The choices of RateLimitPauseKind.
const (
	RateLimitPauseNone   RateLimitPauseKind = iota // each request pauses for itself
	RateLimitPauseRoute                            // all of the route
	RateLimitPauseHeader                           // those of the route with the same value in a field; without it a request pauses for itself
)

// RateLimitPause is what a route does with the pause that a 429 asks for, by
// Retry-After or by a rate limit used up.
type RateLimitPause struct {
	Kind   RateLimitPauseKind
	Header string // the field's name, for RateLimitPauseHeader

	// Max is the longest pause that is shared. A longer one is passed to the
	// client at once and stops nobody else.
	Max time.Duration
}

// ApplyRateLimitPause takes over a pause that began elsewhere: key is what another
// process with the same routes was given by Config.RateLimitPauseBegan, lasts how
// much of the pause is left. It is not told to RateLimitPauseBegan here. What is
// longer than any route's Cooldown.Max is not believed. It does not block;
// safe for concurrent use.
func (s *Server) ApplyRateLimitPause(key uint64, lasts time.Duration) {
	if lasts <= 0 || lasts > s.settings.Load().longestRateLimitPause {
		return
	}
	now := s.elapsed()
	s.rateLimitPauses.Begin(key, now+lasts, now)
}

// pauseKey is what the request shares a pause by; no when it shares none.
// It is the same in every process with the same route to the same upstream. A
// cryptographic hash, so that no client can make a value that pauses another's.
func (x *exchange) pauseKey() (uint64, bool) {
	r := x.route
	h := r.rateLimitPauseSeed
	switch r.RateLimitPause.Kind {
	case RateLimitPauseRoute:
	case RateLimitPauseHeader:
		value, ok := x.req.Lookup(r.RateLimitPause.Header)
		if !ok {
			return 0, false
		}
		return hashValue(h, value), true
	default:
		return 0, false
	}
	return binary.BigEndian.Uint64(h[:]), true
}

// pauseSeed is the part of a key that is the same for all of a route.
func pauseSeed(r *Route) [sha256.Size]byte {
	return sha256.Sum256([]byte("cooldown\x00" + r.Upstream.String() + "\x00" + r.Name + "\x00" + r.RateLimitPause.Header))
}

// startPause takes up the pause that a 429 asks for.
func (x *exchange) startPause(a *policy.Attempt) {
	if a.Status != 429 || !a.HasRetryAfter || a.RetryAfter > x.route.RateLimitPause.Max {
		return
	}
	key, ok := x.pauseKey()
	if !ok {
		return
	}
	s := x.c.server
	now := s.elapsed()
	if s.rateLimitPauses.Begin(key, now+a.RetryAfter, now) && x.set.RateLimitPauseBegan != nil {
		x.set.RateLimitPauseBegan(key, a.RetryAfter)
	}
}

// pauseTooLong says whether the failed attempt asks for a pause that is for
// the client to decide about.
func (x *exchange) pauseTooLong(a *policy.Attempt) bool {
	return x.route.RateLimitPause.Kind != RateLimitPauseNone && a.Cause == policy.CauseStatus && a.Status == 429 &&
		a.HasRetryAfter && a.RetryAfter > x.route.RateLimitPause.Max
}

// pauseLeft is how much longer the request has to pause; 0 when it has not.
func (x *exchange) pauseLeft(now instant) time.Duration {
	s, t := x.c.server, x.c.server.since(now)
	if x.route.RateLimitPause.Kind == RateLimitPauseNone || !s.rateLimitPauses.AnyActive(t) {
		return 0
	}
	key, ok := x.pauseKey()
	if !ok {
		return 0
	}
	left := s.rateLimitPauses.Remaining(key, t)
	if left > x.route.RateLimitPause.Max {
		return 0 // learnt from a process that allows more
	}
	return left
}

// waitOutPause waits for the end of a rate-limit pause that the request is in, when it has
// the time, and gives the time that it then is. It holds no place at the
// upstream meanwhile.
func (x *exchange) waitOutPause(now instant) (admission, instant) {
	for {
		left := x.pauseLeft(now)
		if left <= 0 {
			return admitted, now
		}
		room := x.maxWait(now)
		wait, fits := policy.RateLimitPauseWait(left, room, policy.Shared())
		switch {
		case room <= 0:
			return deadlinePassed, now
		case !fits:
			x.rejectedBy, x.retryAfter = rejectedByPause, wholeSeconds(left)
			return notAdmitted, now
		}
		end := x.c.await(now.Add(wait), nil)
		x.observer.Queued(x.tick().Sub(now))
		x.traceWait(waitHeld, now)
		switch end {
		case clientLeft:
			return clientLeftQueue, now
		case drainBegan:
			x.retryAfter = wholeSeconds(left)
			return drainEndedWait, now
		}
		now = x.clock // others may have met a 429 meanwhile
	}
}

// wholeSeconds rounds up, as the value of a Retry-After wants it.
func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// maxRequestWait is how long the request may wait at most before it is sent.
func (x *exchange) maxRequestWait(now instant) time.Duration {
	room := min(x.timeLeft(now), longestWait)
	if limit := x.requestTimeout(); limit > 0 && x.sentAt.IsZero() { // its clock has not started: the body is not read yet
		room = min(room, x.began.Add(limit).Sub(now))
	}
	return room
}

// maxWait is how long the request may wait before its next attempt at most.
func (x *exchange) maxWait(now instant) time.Duration {
	room := x.maxRequestWait(now)
	if window := x.route.Policy.Window; window > 0 && x.attempts > 0 {
		room = min(room, x.began.Add(window).Sub(now)+1)
	}
	return room
}
