package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// silence holds what a Guard knows of missing responses: how many are missing, for which
// URLs, and whether that is suspect.
type silence struct {
	stall   stallDetector
	suspect suspectState
	urls    urls
}

// judge evaluates a silence after a refresh. It reports whether the upstream is down, and
// sets or clears the suspicion.
func (s *silence) judge(now time.Duration, u *latency.Baseline, awaiting int64) (down bool) {
	if s.stall.suspicion(now, u, awaiting) < suspicionThreshold {
		s.suspect = suspectState{}
		return false
	}
	if (s.stall.leftLate >= leftLateUnknown || now-s.stall.first() >= downAfter(u)) && !s.oneURLStalled(now, u) {
		s.suspect = suspectState{}
		return true
	}
	s.suspect.begin(now, suspectInterval(u))
	return false
}

// responseSeen clears the suspicion after a response.
func (s *silence) responseSeen(e AttemptEnd) {
	if e.Kind == Responded && s.suspect.on {
		s.suspect = suspectState{}
	}
}

// admitted records the URL of a request that was admitted while suspect.
func (s *silence) admitted(now time.Duration, u *latency.Baseline, key uint32) {
	if s.suspect.on {
		s.urls.recordPending(s.stall.lastResponseAt, now, now+overdue(u), key)
	}
}

// oneURLStalled reports whether a silence may affect one URL only: the upstream has little
// traffic, and another URL was answered before and not tried since.
func (s *silence) oneURLStalled(now time.Duration, u *latency.Baseline) bool {
	since := s.stall.lastResponseAt
	return s.littleTraffic(now, u) &&
		s.urls.anotherResponds(now, func(key uint32) bool { return s.urls.isStalled(since, now, key) })
}

// littleTraffic reports whether few responses are missing in a silence, and at most one URL
// is known to be silent.
func (s *silence) littleTraffic(now time.Duration, u *latency.Baseline) bool {
	lacking := u.Rate * downAfter(u).Seconds()
	switch s.urls.stalledSince(s.stall.lastResponseAt, now) {
	case 0:
		return lacking < minTraffic
	case 1:
		return lacking < littleTraffic
	}
	return false
}

// admitsTrial reports whether a request is admitted while suspect, once. Its URL was
// answered recently, so its response shows whether the upstream works.
func (s *silence) admitsTrial(now time.Duration, u *latency.Baseline, r Request) bool {
	return s.suspect.on && !s.suspect.trialUsed && s.littleTraffic(now, u) && s.urls.respondedLately(now, r.Key) &&
		!r.Unfinished && !s.urls.isStalled(s.stall.lastResponseAt, now, r.Key)
}
