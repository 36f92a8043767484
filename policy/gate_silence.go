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
// where P is the spread of latencies seen (usual.tail). Only requests older than
// overdue count. So one request must be overdue by far, a few by less, and on
// an upstream where half of the requests are long polls it takes a score of
// them. This is the idea of the phi accrual failure detector (Hayashibara et
// al., 2004), with the latencies of requests in place of heartbeats.
type silence struct {
	answered int64         // answers when last looked at
	brokenAt time.Duration // the look that saw the last of them
	marks    [silenceMarks]mark
	n        int
}

// mark says how many requests had been sent by a time.
type mark struct {
	at   time.Duration
	sent int64
}

const (
	silenceMarks = 32
	// enoughSurprise is -ln of 6e-6: one false alarm in 160 000 silences,
	// and a silence must be overdue to be counted at all.
	enoughSurprise = 12
	// overdueLeast and overdueTimes: requests younger than the longer of
	// 250 ms and three times the 90th percentile are never overdue. 250 ms
	// leaves room for a long garbage collection and for one retransmission
	// of TCP (200 ms); with three times the usual a caller's patience (a
	// second or two, where latencies are 100 ms) is far away still.
	overdueLeast = 250 * time.Millisecond
	overdueTimes = 3
	// looksPerOverdue is how finely ages are known.
	looksPerOverdue = 8
	// longestLook bounds the time between two looks.
	longestLook = time.Second
)

// overdue is the age from which on an unanswered request counts.
func overdue(u *usual) time.Duration { return max(overdueLeast, overdueTimes*u.p90) }

// lookEvery is the time between two looks.
func lookEvery(u *usual) time.Duration { return min(overdue(u)/looksPerOverdue, longestLook) }

// reset forgets all that was sent so far.
func (s *silence) reset(now time.Duration, sent, answered int64) {
	s.answered, s.n = answered, 1
	s.marks[0] = mark{now, sent}
}

// look notes how many requests were sent and answered by now.
func (s *silence) look(now time.Duration, sent, answered int64) {
	if answered != s.answered || s.n == 0 {
		s.reset(now, sent, answered)
		s.brokenAt = now
		return
	}
	if sent == s.marks[s.n-1].sent {
		s.marks[s.n-1].at = now // nothing was sent since: what comes is younger
		return
	}
	if s.n == silenceMarks {
		s.thin()
	}
	s.marks[s.n] = mark{now, sent}
	s.n++
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

// surprise is how surprising the silence is at now, after look. open is how
// many requests are under way at most: what ended without an answer is not
// missed.
func (s *silence) surprise(now time.Duration, u *usual, open int64) float64 {
	due, sum := overdue(u), 0.0
	for i := 0; i+1 < s.n && open > 0; i++ {
		age := now - s.marks[i].at
		if age < due {
			break
		}
		n := min(s.marks[i+1].sent-s.marks[i].sent, open)
		open -= n
		sum -= float64(n) * math.Log(u.tail(age))
	}
	return sum
}
