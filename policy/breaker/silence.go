package breaker

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// silence detects an upstream that has stopped responding. A single slow request proves
// nothing, since it may be a long poll. What counts is that no request sent since the last
// response was answered, although they are old enough:
//
//	suspicion = sum over the requests sent since the last response of -ln P(L > age)
//
// where P is the distribution of the latencies seen (latency.Baseline.Tail). So two requests
// must be far overdue, or a few by less. This is the idea of the phi accrual failure
// detector (Hayashibara et al., 2004), with the latencies of requests in place of
// heartbeats. Without an established baseline it counts less until a client left late. After a lost
// connection, only clients that left late show it: who responded may be gone, and who takes over may be slow at first.
type silence struct {
	lastAt   time.Duration // the update that saw the last response
	marks    []mark        // at least one, at most silenceMarks
	leftLate int           // clients that left late since then
	movedAt  time.Duration // see core.moved; 0: what is usual holds
}

const (
	// silenceMarks is the number of times at which sent requests are counted. In a long
	// silence the first ones are enough.
	silenceMarks = 32
	// suspicionThreshold is -ln of 1e-4: one false alarm in 10 000 overdue silences. A false
	// alarm only makes requests wait until the next response.
	suspicionThreshold = 9.2
	// Requests younger than 250 ms are never overdue, which covers a long garbage collection
	// and one TCP retransmission (200 ms). Nor are those younger than three times the 90th
	// percentile of latencies (or twice the median, if one in ten requests goes to a slow
	// endpoint). That is still far below a client's patience.
	overdueMin  = 250 * time.Millisecond
	overdueP90s = 3
	// overdueUnknown applies to an upstream of which nothing is known, and less the more is known:
	// few services take longer, and few clients wait less. So what passes beside the window at an
	// unknown rate passes that seldom.
	overdueUnknown = time.Second
	// A silence shows that the upstream is down when it has lasted for downFrom and for
	// downMedians usual latencies, but no longer than downMax: what took 100 ms may take ten
	// times as long. Clients with 2 s of patience are still there then.
	downFrom    = 1150 * time.Millisecond
	downMedians = 11
	downMax     = 10 * time.Second
	// manyClients that left late show that responses take longer than clients wait: they know
	// what they wait for.
	manyClients = 3
	// refreshesPerOverdue is the precision of ages.
	refreshesPerOverdue = 8
)

// overdue returns the age from which an unanswered request counts.
func overdue(u *latency.Baseline) time.Duration {
	usual := max(overdueMin, overdueP90s*min(u.P90, 2*u.Median))
	known := u.Confidence()
	return time.Duration(known*float64(usual) + (1-known)*float64(max(usual, overdueUnknown)))
}

// downAfter returns how long a silence lasts that shows that the upstream is down.
func downAfter(u *latency.Baseline) time.Duration {
	return max(downFrom, min(downMedians*u.Median, downMax))
}

// refreshInterval returns the time between two updates.
func refreshInterval(u *latency.Baseline) time.Duration {
	return min(overdue(u)/refreshesPerOverdue, time.Second)
}

// reset forgets all requests sent so far.
func (s *silence) reset(m mark) {
	s.leftLate = 0
	s.marks = append(s.marks[:0], m)
}

// update records how many requests were sent by now, and whether a response came since the last update.
func (s *silence) update(m mark, answered bool) {
	if answered {
		s.reset(m)
		s.lastAt = m.at
		return
	}
	if last := &s.marks[len(s.marks)-1]; m.sent <= last.sent {
		last.at = m.at // nothing was sent since: later requests are younger
	} else if len(s.marks) < silenceMarks {
		s.marks = append(s.marks, m)
	}
}

// suspicion returns the suspicion at now, after update. It is 0 unless the first request is
// overdue and another one is at least half as old. open is the maximum number of requests in
// flight: a request that ended without a response is not missing.
func (s *silence) suspicion(now time.Duration, u *latency.Baseline, open int64) float64 {
	due := overdue(u)
	known := u.Known() && s.movedAt == 0
	switch {
	case !known && s.leftLate >= manyClients:
		return suspicionThreshold
	case !known, now-s.since() < due:
		return 0
	}
	sum, seen := 0.0, int64(0)
	for i := 0; i+1 < len(s.marks) && open > 0; i++ {
		age := now - s.marks[i].at
		if age < due/2 {
			break
		}
		n := max(0, min(s.marks[i+1].sent-s.marks[i].sent, open))
		open -= n
		seen += n
		sum -= float64(n) * math.Log(u.Tail(age))
	}
	if seen < 2 {
		return 0
	}
	if s.leftLate == 0 { // a distribution that is half known counts half
		sum *= u.Confidence()
	}
	return sum
}

// unsent removes a request from the marks that no longer counts as sent.
func (s *silence) unsent(entered time.Duration) {
	for i := len(s.marks) - 1; i >= 0 && s.marks[i].at > entered; i-- {
		s.marks[i].sent--
	}
}

// since returns when the silence began, as precisely as the refresh interval.
func (s *silence) since() time.Duration { return s.marks[0].at }
