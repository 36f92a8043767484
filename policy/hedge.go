package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// HedgeAfter says how long an attempt is waited for before a second one, its
// hedge, is sent beside it: as long as a percentage of answers take (p95), or a
// fixed time. The zero value is off. It is comparable.
type HedgeAfter struct {
	percent int           // 50 to 99; 0: fixed
	fixed   time.Duration // 1 ms to 10 min; 0 with percent 0: off
	least   time.Duration // with percent: not sooner than this, also while nothing is learnt
}

// Bounds of a HedgeAfter. Below a millisecond a hedge is sent for what the
// network and the scheduler did. Beyond ten minutes nobody waits. A percentage
// below 50 would hedge most requests.
const (
	leastHedge   = time.Millisecond
	mostHedge    = 10 * time.Minute
	leastPercent = 50
	mostPercent  = 99
)

// SlowAttempt is when an attempt is slow: a second one beside it, to another
// endpoint, may then be the way to a response, and does not end the first before
// it has a good one. It takes the place of an attempt timeout.
func SlowAttempt() HedgeAfter { return HedgeAfter{percent: 99, least: slowAttempt} }

const slowAttempt = 10 * time.Second

// Slow reports whether h is SlowAttempt, which is only for upstreams of several endpoints.
func (h HedgeAfter) Slow() bool { return h.least > 0 }

// ParseHedgeAfter reads "off", "p95" (p50 to p99), or a duration from 1ms to
// 10m.
func ParseHedgeAfter(s string) (HedgeAfter, error) {
	if strings.EqualFold(s, "off") {
		return HedgeAfter{}, nil
	}
	if number, isPercent := strings.CutPrefix(s, "p"); isPercent {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil || n < leastPercent || n > mostPercent {
			return HedgeAfter{}, fmt.Errorf("percentile %s is not within p%d to p%d", s, leastPercent, mostPercent)
		}
		return HedgeAfter{percent: int(n)}, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return HedgeAfter{}, errors.New("neither a percentile nor a duration")
	case d < leastHedge || d > mostHedge:
		return HedgeAfter{}, fmt.Errorf("%s is not within %s to 10m", s, leastHedge)
	}
	return HedgeAfter{fixed: d}, nil
}

// String is the inverse of ParseHedgeAfter.
func (h HedgeAfter) String() string {
	switch {
	case h.least > 0:
		return "p" + strconv.Itoa(h.percent) + ", " + h.least.String() + " at least"
	case h.percent > 0:
		return "p" + strconv.Itoa(h.percent)
	case h.fixed > 0:
		return h.fixed.String()
	}
	return "off"
}

// Off reports that no hedge is ever sent.
func (h HedgeAfter) Off() bool { return h == HedgeAfter{} }

// Fixed is the fixed time; 0 when there is none.
func (h HedgeAfter) Fixed() time.Duration { return h.fixed }

// Hedge is when the requests of one route are hedged, with what it has learnt
// of their latency. All methods are safe for concurrent use; see Latencies for
// what they cost and for now.
type Hedge struct {
	after     HedgeAfter
	latencies *Latencies // nil with a fixed time
}

// NewHedge makes one that has learnt nothing; nil when h is off.
func NewHedge(h HedgeAfter) *Hedge {
	switch {
	case h.Off():
		return nil
	case h.percent == 0:
		return &Hedge{after: h}
	}
	return &Hedge{after: h, latencies: NewLatencies(h.percent)}
}

// After is how long an attempt is waited for, from its request being sent
// whole on; 0 while that is not known (never of SlowAttempt), which means for ever.
func (h *Hedge) After(now time.Duration) time.Duration {
	if h.latencies == nil {
		return h.after.fixed
	}
	if d := h.latencies.Estimate(now); d > 0 {
		return max(d, leastHedge, h.after.least)
	}
	return h.after.least
}

// Learn takes in an attempt that might have been hedged and was no hedge
// itself: d after its request was sent whole, its response's headers came, or it
// was no longer waited for. A failing response teaches nothing and is not given:
// what rejects is quick.
func (h *Hedge) Learn(d time.Duration, answered bool) {
	switch {
	case h.latencies == nil:
	case answered:
		h.latencies.ObserveResponse(d)
	default:
		h.latencies.ObserveAbandoned(d)
	}
}

// MayHedge is the first reason against a hedge of a request in situation s,
// ReasonNone when there is none. It is asked with b nil before what costs more,
// and with the budget, which gives a token then, as the last. A hedge counts
// as one of Situation.Retries.
func (p *Policy) MayHedge(s *Situation, b *Budget, now time.Duration) Reason {
	switch {
	case !s.Safe:
		return ReasonNotIdempotent
	case s.Layered:
		return ReasonLayered
	case p.MaxRetries <= 0 || s.MaxRetries <= 0:
		return ReasonRetriesOff
	case s.Retries >= s.MaxRetries, p.Window > 0 && s.Elapsed > p.Window:
		return ReasonRetriesExhausted
	case s.Replay != ReplayWhole:
		return s.Replay.whyNot()
	case s.Draining:
		return ReasonDraining
	case s.Left <= 0:
		return ReasonDeadline
	case b != nil && !b.TryRetry(now):
		return ReasonBudgetExhausted
	}
	return ReasonNone
}

// BetterFailure reports whether, of two attempts that both failed, b is the one
// to go on with instead of a, which was sent before: what the client gets when
// there is no further retry, and what decides about one. A real response goes
// before none, and one that may still come before one that cannot. Of two
// responses it is the one that asks for the longer wait, so that no retry comes
// sooner than either allows, one that forbids a retry, or else the later.
func BetterFailure(a, b *Attempt) bool {
	if ra, rb := a.failureRank(), b.failureRank(); ra != rb || ra < rankResponse {
		return rb > ra
	}
	switch {
	case a.Final != b.Final:
		return b.Final
	case a.HasRetryAfter && b.HasRetryAfter:
		return b.RetryAfter >= a.RetryAfter
	}
	return !a.HasRetryAfter
}

const (
	rankNoResponse = iota
	rankTimedOut   // it timed out: its response may still come
	rankResponse
)

func (a *Attempt) failureRank() int {
	switch a.Cause {
	case CauseStatus:
		return rankResponse
	case CauseAttemptTimeout:
		return rankTimedOut
	}
	return rankNoResponse
}
