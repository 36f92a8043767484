package policy

import (
	"math"
	"time"
)

// stallDetector watches for an upstream that has stopped answering. What tells is not
// that some request takes long (it may be a long poll), but that nothing of
// what was sent since the last response was answered, although it is old enough.
//
// The surprise of a silence is -ln of the probability that a healthy upstream
// would be silent so:
//
//	surprise = sum over the requests sent since the last response of -ln P(L > age)
//
// where P is the spread of latencies seen (usual.tail). The first of them must
// be overdue, and there must be two. So two must be overdue by far, a few by
// less, and on an upstream where half of the requests are long polls it takes a
// dozen of them in a row. This is the idea of the phi accrual failure detector (Hayashibara et
// al., 2004), with the latencies of requests in place of heartbeats.
type stallDetector struct {
	responses      int64         // answers when last looked at
	lastResponseAt time.Duration // the look that saw the last of them
	leftLate       int           // clients who left late since then
	closedRequests closedRequests
	marks          [stallMarks]mark
	n              int
}

// closedRequests are those of a silence whose connections we closed: their responses
// would not have been heard, so each counts with the age that it had then.
type closedRequests struct {
	n         int64
	first     time.Duration // when the first of them was sent
	suspicion float64
}

// mark says how many requests had been sent by a time.
type mark struct {
	at   time.Duration
	sent int64
}

const (
	stallMarks = 32
	// suspicionThreshold is -ln of 1e-4: one false alarm in 10 000 silences that
	// are overdue, and a false alarm delays only those who come while the
	// next one is answered (see breaker.trip).
	suspicionThreshold = 9.2
	// Requests younger than 250 ms are never overdue, nor those younger than
	// three times the 90th percentile of latencies (or six times the median,
	// where one in ten is of a slow endpoint) or 5/4 of the longest hiccup
	// seen. 250 ms leaves room for a long garbage collection and for one
	// retransmission of TCP (200 ms); with three times the usual a client's
	// patience (a second or two, where latencies are 100 ms) is far away still.
	overdueMin         = 250 * time.Millisecond
	overdueTimes       = 3
	overdueMedians     = 6
	minOverdueRequests = 2 // requests
	// overdueUnknown is for an upstream of which little is known: few services
	// take longer, and few clients have less patience.
	overdueUnknown = time.Second
	// Of an upstream of which little or nothing is known, so many clients must
	// have left late besides, and nobody be answered: they know what they
	// wait for, and who starts with a few long polls waits on.
	leftLateLittleKnown = 1
	leftLateUnknown     = 3
	// refreshesPerOverdue is how finely ages are known.
	refreshesPerOverdue = 8
	// maxRefreshInterval bounds the time between two looks.
	maxRefreshInterval = time.Second
)

// overdue is the age from which on an unanswered request counts.
func overdue(u *baseline) time.Duration {
	if !u.established() {
		return max(overdueUnknown, u.pause+u.pause/4)
	}
	usual := min(overdueTimes*u.p90, overdueMedians*u.median)
	return max(overdueMin, usual, u.pause+u.pause/4)
}

// refreshInterval is the time between two looks.
func refreshInterval(u *baseline) time.Duration {
	return min(overdue(u)/refreshesPerOverdue, maxRefreshInterval)
}

// reset forgets all that was sent so far.
func (s *stallDetector) reset(now time.Duration, sent, answered int64) {
	s.responses, s.n, s.leftLate, s.closedRequests = answered, 1, 0, closedRequests{}
	s.marks[0] = mark{now, sent}
}

// update notes how many requests were sent and answered by now, and says whether
// any was answered since the last look.
func (s *stallDetector) update(now time.Duration, sent, answered int64) bool {
	if answered != s.responses || s.n == 0 {
		s.reset(now, sent, answered)
		s.lastResponseAt = now
		return true
	}
	for i := s.n - 1; i >= 0 && s.marks[i].sent > sent; i-- {
		s.marks[i].sent = sent // a place that AcquireFast took back at once
	}
	if sent == s.marks[s.n-1].sent {
		s.marks[s.n-1].at = now // nothing was sent since: what comes is younger
		return false
	}
	if s.n == stallMarks {
		s.thin()
	}
	s.marks[s.n] = mark{now, sent}
	s.n++
	return false
}

// thin drops every second mark: in a silence so long, ages may be coarser.
func (s *stallDetector) thin() {
	kept := 1
	for i := 2; i < s.n; i += 2 {
		s.marks[kept] = s.marks[i]
		kept++
	}
	s.n = kept
}

// suspicion is how surprising the silence is at now, after look: 0 unless the
// first request of it is overdue and another was sent that is half as old at
// least. open is how many requests are in flight at most: what ended without an
// answer is not missed.
func (s *stallDetector) suspicion(now time.Duration, u *baseline, open int64) float64 {
	due := overdue(u)
	switch {
	case !u.known() && s.leftLate >= leftLateUnknown:
		return suspicionThreshold
	case !u.known(), !u.established() && s.leftLate < leftLateLittleKnown:
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
		sum -= float64(n) * math.Log(u.tail(age))
	}
	if seen < minOverdueRequests {
		return 0
	}
	return sum
}

// unsent takes a request out of the marks that is no longer among those sent.
func (s *stallDetector) unsent(entered time.Duration) {
	for i := s.n - 1; i >= 0 && s.marks[i].at > entered; i-- {
		s.marks[i].sent--
	}
}

// closed counts a request whose connection was closed at an age, unless that was
// too young to count while it was in flight: who leaves a moment after asking
// says nothing.
func (s *stallDetector) closed(entered, age time.Duration, u *baseline) {
	if entered < s.lastResponseAt || !u.known() || age < overdue(u)/2 {
		return
	}
	if s.closedRequests.n == 0 || entered < s.closedRequests.first {
		s.closedRequests.first = entered
	}
	s.closedRequests.n++
	s.closedRequests.suspicion -= math.Log(u.tail(age))
}

// first is when the first request was sent that the silence leaves without a response.
func (s *stallDetector) first() time.Duration {
	if s.closedRequests.n > 0 {
		return min(s.marks[0].at, s.closedRequests.first)
	}
	return s.marks[0].at
}

// since is when the silence began, as finely as looks go.
func (s *stallDetector) since() time.Duration { return s.marks[0].at }
