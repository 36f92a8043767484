package breaker

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
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
	if e.Kind == Responded {
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
	return !s.suspect.trialUsed && s.littleTraffic(now, u) && s.urls.respondedLately(now, r.Key) &&
		!r.Unfinished && !s.urls.isStalled(s.stall.lastResponseAt, now, r.Key)
}

// stallDetector detects an upstream that has stopped responding. A single slow request proves nothing,
// since it may be a long poll. What counts is that no request sent since the last response was
// answered, although they are old enough.
//
// The suspicion is -ln of the probability that a healthy upstream would be silent for so long:
//
//	suspicion = sum over the requests sent since the last response of -ln P(L > age)
//
// where P is the distribution of the latencies seen (latency.Baseline.Tail). The first of these
// requests must be overdue, and there must be at least two. So two must be far overdue, or a few by
// less. On an upstream where half of the requests are long polls it takes a dozen in a row. This is
// the idea of the phi accrual failure detector (Hayashibara et al., 2004), with the latencies of
// requests in place of heartbeats.
type stallDetector struct {
	responses      int64         // the number of responses at the last update
	lastResponseAt time.Duration // the update that saw the last of them
	leftLate       int           // clients that left late since then
	closedRequests closedRequests
	marks          [stallMarks]mark
	n              int
}

// closedRequests holds the requests of a silence whose connections we closed. Their
// responses could not be received, so each counts with its age at that time.
type closedRequests struct {
	n         int64
	first     time.Duration // when the first of them was sent
	suspicion float64
}

// mark is the number of requests sent until a time.
type mark struct {
	at   time.Duration
	sent int64
}

const (
	stallMarks = 32
	// suspicionThreshold is -ln of 1e-4: one false alarm in 10 000 overdue silences. A
	// false alarm delays only the requests that arrive while the next one is in flight (see
	// breaker.trip).
	suspicionThreshold = 9.2
	// Requests younger than 250 ms are never overdue. Nor are those younger than three
	// times the 90th percentile of latencies (or six times the median, if one in ten
	// requests goes to a slow endpoint). 250 ms covers a long garbage collection and one TCP
	// retransmission (200 ms). Three times the usual latency is still far below a client's
	// patience (a second or two, if latencies are 100 ms).
	overdueMin         = 250 * time.Millisecond
	overdueTimes       = 3
	overdueMedians     = 6
	minOverdueRequests = 2 // requests
	// overdueUnknown applies without an established baseline: few services take longer, and
	// few clients wait less.
	overdueUnknown = time.Second
	// Without a baseline, or with little of one, at least this many clients must also have
	// left late, and no request be answered. Clients know what they wait for: a client that
	// starts with a few long polls keeps waiting.
	leftLateLittleKnown = 1
	leftLateUnknown     = 3
	// refreshesPerOverdue is the precision of ages: updates per overdue time.
	refreshesPerOverdue = 8
	// maxRefreshInterval is the maximum time between two updates.
	maxRefreshInterval = time.Second
)

// overdue returns the age from which an unanswered request counts.
func overdue(u *latency.Baseline) time.Duration {
	if !u.Established() {
		return overdueUnknown
	}
	return max(overdueMin, min(overdueTimes*u.P90, overdueMedians*u.Median))
}

// refreshInterval returns the time between two updates.
func refreshInterval(u *latency.Baseline) time.Duration {
	return min(overdue(u)/refreshesPerOverdue, maxRefreshInterval)
}

// reset forgets all requests sent so far.
func (s *stallDetector) reset(now time.Duration, sent, answered int64) {
	s.responses, s.n, s.leftLate, s.closedRequests = answered, 1, 0, closedRequests{}
	s.marks[0] = mark{now, sent}
}

// update records how many requests were sent and answered by now, and reports whether any
// was answered since the last update.
func (s *stallDetector) update(now time.Duration, sent, answered int64) bool {
	if answered != s.responses || s.n == 0 {
		s.reset(now, sent, answered)
		s.lastResponseAt = now
		return true
	}
	if sent == s.marks[s.n-1].sent {
		s.marks[s.n-1].at = now // nothing was sent since: later requests are younger
		return false
	}
	if s.n < stallMarks { // in a long silence the first ones are enough
		s.marks[s.n] = mark{now, sent}
		s.n++
	}
	return false
}

// suspicion returns the suspicion at now, after update. It is 0 unless the first request is
// overdue and another one is at least half as old. open is the maximum number of requests
// in flight: a request that ended without a response is not missing.
func (s *stallDetector) suspicion(now time.Duration, u *latency.Baseline, open int64) float64 {
	due := overdue(u)
	switch {
	case !u.Known() && s.leftLate >= leftLateUnknown:
		return suspicionThreshold
	case !u.Known(), !u.Established() && s.leftLate < leftLateLittleKnown:
		return 0
	}
	sum, seen := s.closedRequests.suspicion, s.closedRequests.n
	if now-s.first() < due {
		return 0
	}
	for i := 0; i+1 < s.n && open > 0; i++ {
		age := now - s.marks[i].at
		if age < due/2 {
			break
		}
		n := min(s.marks[i+1].sent-s.marks[i].sent, open)
		open -= n
		seen += n
		sum -= float64(n) * math.Log(u.Tail(age))
	}
	if seen < minOverdueRequests {
		return 0
	}
	return sum
}

// unsent removes a request from the marks that no longer counts as sent.
func (s *stallDetector) unsent(entered time.Duration) {
	for i := s.n - 1; i >= 0 && s.marks[i].at > entered; i-- {
		s.marks[i].sent--
	}
}

// closed counts a request whose connection was closed at an age, unless it was too young to
// count. A client that leaves a moment after its request is no evidence.
func (s *stallDetector) closed(entered, age time.Duration, u *latency.Baseline) {
	if entered < s.lastResponseAt || !u.Known() || age < overdue(u)/2 {
		return
	}
	if s.closedRequests.n == 0 || entered < s.closedRequests.first {
		s.closedRequests.first = entered
	}
	s.closedRequests.n++
	s.closedRequests.suspicion -= math.Log(u.Tail(age))
}

// first returns when the first unanswered request of the silence was sent.
func (s *stallDetector) first() time.Duration {
	if s.closedRequests.n > 0 {
		return min(s.marks[0].at, s.closedRequests.first)
	}
	return s.marks[0].at
}

// since returns when the silence began, as precisely as the refresh interval.
func (s *stallDetector) since() time.Duration { return s.marks[0].at }

// suspectState is the state between a surprising silence and one that shows that the
// upstream is down. A stopped upstream and one that only became slower look the same until
// the first response. A wrong guess costs clients of a healthy upstream their responses,
// and a limit learned from it costs more. So new requests wait, and one is admitted every
// suspectInterval. If the upstream is slow, responses keep arriving one by one. If it is
// down, it has a few more requests to work off.
type suspectState struct {
	on            bool
	trialUsed     bool          // one request was admitted for its URL
	nextAdmitAt   time.Duration // when the next one may be admitted
	admitInterval time.Duration
}

const (
	// While suspect, one request is admitted every suspectMinInterval. With less traffic it
	// is every suspectGaps times the usual gap between requests, so that fifty proxies with
	// little traffic admit as few as one with much. It is never longer than
	// suspectMaxInterval.
	suspectMinInterval = 100 * time.Millisecond
	suspectGaps        = 4
	suspectMaxInterval = time.Second
	// A silence opens the breaker when it has lasted for downFrom and for downTimes the
	// median latency, but no longer than downMax: what took 100 ms may take ten times as
	// long. So a stopped upstream with latencies of 100 ms gets eight requests while
	// suspect, and clients with 2 s of patience are still there when the breaker opens.
	// Clients know what they wait for, so leftLateUnknown of them that left late open it at
	// once.
	downFrom  = 1150 * time.Millisecond
	downTimes = 11
	downMax   = 10 * time.Second
)

// downAfter returns how long a silence lasts that shows that the upstream is down.
func downAfter(u *latency.Baseline) time.Duration {
	return max(downFrom, min(downTimes*u.Median, downMax))
}

// suspectInterval returns the time between two admitted requests.
func suspectInterval(u *latency.Baseline) time.Duration {
	if u.Rate <= 0 {
		return suspectMinInterval
	}
	return max(suspectMinInterval, min(time.Duration(suspectGaps/u.Rate*float64(time.Second)), suspectMaxInterval))
}

// begin starts the suspicion; it has no effect if it is already on.
func (d *suspectState) begin(now, every time.Duration) {
	if !d.on {
		*d = suspectState{on: true, admitInterval: every, nextAdmitAt: now + every}
	}
}

// mayAdmit reports whether one request may be admitted.
func (d *suspectState) mayAdmit(now time.Duration) bool { return d.on && now >= d.nextAdmitAt }

// nextEvent returns when mayAdmit will first be true, or Forever if it is or never will be.
func (d *suspectState) nextEvent(now time.Duration) time.Duration {
	if !d.on || d.mayAdmit(now) {
		return backoff.Forever
	}
	return d.nextAdmitAt
}

// admitted records that a request was admitted.
func (d *suspectState) admitted(now time.Duration) {
	if d.on {
		d.nextAdmitAt = now + d.admitInterval
	}
}

// checkStall evaluates a silence if requests can still be held back: by the breaker, or by
// a limit that does not bind yet.
func (g *core) checkStall(now time.Duration) {
	watched := g.breaker.allowsRequests()
	if g.options.NoBreaker {
		watched = g.limiter.mayBind()
	}
	if !watched {
		g.silence.suspect = suspectState{}
		return
	}
	if g.silence.judge(now, &g.baseline, g.counters.awaitingResponse()) {
		g.tripBreaker(now, OpenedByStall)
	}
}
