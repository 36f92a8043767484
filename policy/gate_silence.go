package policy

import (
	"math"
	"time"
)

// silence watches for an upstream that has stopped answering. What tells is not
// that some request takes long (it may be a long poll), but that nothing of
// what was sent since the last answer was answered, although it is old enough.
//
// The surprise of a silence is -ln of the probability that a healthy upstream
// would be silent so:
//
//	surprise = sum over the requests sent since the last answer of -ln P(L > age)
//
// where P is the spread of latencies seen (usual.tail). The first of them must
// be overdue, and there must be two. So two must be overdue by far, a few by
// less, and on an upstream where half of the requests are long polls it takes a
// dozen of them in a row. This is the idea of the phi accrual failure detector (Hayashibara et
// al., 2004), with the latencies of requests in place of heartbeats.
type silence struct {
	answered int64         // answers when last looked at
	brokenAt time.Duration // the look that saw the last of them
	left     int           // callers who left late since then
	gone     goneRequests
	marks    [silenceMarks]mark
	n        int
}

// goneRequests are those of a silence whose connections we closed: their answers
// would not have been heard, so each counts with the age that it had then.
type goneRequests struct {
	n        int64
	first    time.Duration // when the first of them was sent
	surprise float64
}

// mark says how many requests had been sent by a time.
type mark struct {
	at   time.Duration
	sent int64
}

const (
	silenceMarks = 32
	// enoughSurprise is -ln of 1e-4: one false alarm in 10 000 silences that
	// are overdue, and a false alarm delays only those who come while the
	// next one is answered (see gate.close).
	enoughSurprise = 9.2
	// Requests younger than 250 ms are never overdue, nor those younger than
	// three times the 90th percentile of latencies (or six times the median,
	// where one in ten is of a slow endpoint) or 5/4 of the longest hiccup
	// seen. 250 ms leaves room for a long garbage collection and for one
	// retransmission of TCP (200 ms); with three times the usual a caller's
	// patience (a second or two, where latencies are 100 ms) is far away still.
	overdueLeast   = 250 * time.Millisecond
	overdueTimes   = 3
	overdueMedians = 6
	leastSilent    = 2 // requests
	// overdueUnknown is for an upstream of which little is known: few services
	// take longer, and few callers have less patience.
	overdueUnknown = time.Second
	// Of an upstream of which little or nothing is known, so many callers must
	// have left late besides, and nobody be answered: they know what they
	// wait for, and who starts with a few long polls waits on.
	leftLittle  = 1
	leftNothing = 3
	// looksPerOverdue is how finely ages are known.
	looksPerOverdue = 8
	// longestLook bounds the time between two looks.
	longestLook = time.Second
)

// overdue is the age from which on an unanswered request counts.
func overdue(u *usual) time.Duration {
	if !u.well() {
		return max(overdueUnknown, u.pause+u.pause/4)
	}
	usual := min(overdueTimes*u.p90, overdueMedians*u.median)
	return max(overdueLeast, usual, u.pause+u.pause/4)
}

// lookEvery is the time between two looks.
func lookEvery(u *usual) time.Duration { return min(overdue(u)/looksPerOverdue, longestLook) }

// reset forgets all that was sent so far.
func (s *silence) reset(now time.Duration, sent, answered int64) {
	s.answered, s.n, s.left, s.gone = answered, 1, 0, goneRequests{}
	s.marks[0] = mark{now, sent}
}

// look notes how many requests were sent and answered by now, and says whether
// any was answered since the last look.
func (s *silence) look(now time.Duration, sent, answered int64) bool {
	if answered != s.answered || s.n == 0 {
		s.reset(now, sent, answered)
		s.brokenAt = now
		return true
	}
	for i := s.n - 1; i >= 0 && s.marks[i].sent > sent; i-- {
		s.marks[i].sent = sent // a place that EnterFast took back at once
	}
	if sent == s.marks[s.n-1].sent {
		s.marks[s.n-1].at = now // nothing was sent since: what comes is younger
		return false
	}
	if s.n == silenceMarks {
		s.thin()
	}
	s.marks[s.n] = mark{now, sent}
	s.n++
	return false
}

// thin drops every second mark: in a silence so long, ages may be coarser.
func (s *silence) thin() {
	kept := 1
	for i := 2; i < s.n; i += 2 {
		s.marks[kept] = s.marks[i]
		kept++
	}
	s.n = kept
}

// surprise is how surprising the silence is at now, after look: 0 unless the
// first request of it is overdue and another was sent that is half as old at
// least. open is how many requests are under way at most: what ended without an
// answer is not missed.
func (s *silence) surprise(now time.Duration, u *usual, open int64) float64 {
	due := overdue(u)
	switch {
	case !u.known() && s.left >= leftNothing:
		return enoughSurprise
	case !u.known(), !u.well() && s.left < leftLittle:
		return 0
	}
	sum, seen := s.gone.surprise, s.gone.n
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
	if seen < leastSilent {
		return 0
	}
	return sum
}

// unsent takes a request out of the marks that is no longer among those sent.
func (s *silence) unsent(entered time.Duration) {
	for i := s.n - 1; i >= 0 && s.marks[i].at > entered; i-- {
		s.marks[i].sent--
	}
}

// lost counts a request whose connection was closed at an age, unless that was
// too young to count while it was under way: who leaves a moment after asking
// says nothing.
func (s *silence) lost(entered, age time.Duration, u *usual) {
	if entered < s.brokenAt || !u.known() || age < overdue(u)/2 {
		return
	}
	if s.gone.n == 0 || entered < s.gone.first {
		s.gone.first = entered
	}
	s.gone.n++
	s.gone.surprise -= math.Log(u.tail(age))
}

// first is when the first request was sent that the silence leaves without an answer.
func (s *silence) first() time.Duration {
	if s.gone.n > 0 {
		return min(s.marks[0].at, s.gone.first)
	}
	return s.marks[0].at
}

// since is when the silence began, as finely as looks go.
func (s *silence) since() time.Duration { return s.marks[0].at }
