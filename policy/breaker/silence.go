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
	lastAt   time.Duration // when the last response was seen
	from     time.Duration // when its generation began
	older    int64         // what is in flight in that generation, but was sent before it
	since    time.Duration // when the first request was sent that is missing since then
	left     float64       // the suspicion for missing requests that were abandoned
	leftLate int           // clients that left late since then
	movedAt  time.Duration // see core.moved; 0: what is usual holds
}

const (
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

// refreshInterval returns the time between two updates: half of a generation.
func refreshInterval(u *latency.Baseline) time.Duration {
	return min(overdue(u)/(2*generationsPerOverdue), time.Second)
}

// end records a response, or that all requests sent so far say nothing.
func (s *silence) end(now time.Duration, c *generations) {
	g := c.now()
	*s = silence{lastAt: now, from: g.began, older: g.waited(), since: now, movedAt: s.movedAt}
}

// leave records that an attempt sent at sent was abandoned, when a response was nearly overdue or, with late, was.
func (s *silence) leave(sent, now time.Duration, late bool, u *latency.Baseline) {
	if sent < s.lastAt {
		return
	}
	if late {
		s.leftLate++
	}
	s.left += s.missing(now-sent, u)
}

// missing returns the suspicion for a request of an age. One alone is never enough. Without a client that left
// late, a distribution that is half known counts half.
func (s *silence) missing(age time.Duration, u *latency.Baseline) float64 {
	known := 1.0
	if s.leftLate == 0 {
		known = u.Confidence()
	}
	return min(-known*math.Log(u.Tail(age)), suspicionThreshold-1)
}

// suspicion returns the suspicion at now. It is 0 unless the first request is overdue and another one is at
// least half as old.
func (s *silence) suspicion(now time.Duration, u *latency.Baseline, c *generations) float64 {
	due, known := overdue(u), u.Known() && s.movedAt == 0
	sum, some := s.left, s.left > 0
	for i := range c.ring {
		g := &c.ring[i]
		n := g.waited()
		if n > 0 && g.began == s.from {
			s.older = min(s.older, n)
			n -= s.older
		}
		if n > 0 && g.began >= s.from {
			some = true
			if age := now - g.began; age >= due/2 {
				sum += float64(n) * s.missing(age, u)
			}
		}
	}
	if !some {
		s.since = now // later requests are younger
	}
	switch {
	case !known && s.leftLate >= manyClients:
		return suspicionThreshold
	case !known, now-s.since < due:
		return 0
	}
	return sum
}
