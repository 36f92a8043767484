package policy

// MayHedge returns the first reason against a hedge of a request in situation s, or
// ReasonNone. It does not ask the retry budget. A hedge counts as one of Situation.Retries.
func (p *Policy) MayHedge(s *Situation) Reason {
	switch {
	case !s.Safe:
		return ReasonNotIdempotent
	case s.Layered:
		return ReasonLayered
	case p.MaxRetries <= 0 || s.MaxRetries <= 0:
		return ReasonRetriesOff
	case s.Retries >= s.MaxRetries:
		return ReasonRetriesExhausted
	case s.Replay != ReplayWhole:
		return s.Replay.whyNot()
	case s.Draining:
		return ReasonDraining
	case s.Left <= 0:
		return ReasonDeadline
	}
	return ReasonNone
}

// BetterFailure reports whether, of two failed attempts, b replaces a, which was sent
// earlier. The better one decides about a retry, and the client gets it if there is none. A
// response is better than none, and an attempt that may still get one is better than one
// that cannot. Of two responses, one that forbids a retry is better. Then the longer
// Retry-After is better, so that no retry comes sooner than either allows, and then the
// later response.
func BetterFailure(a, b *Result) bool {
	if ra, rb := a.failureRank(), b.failureRank(); ra != rb || ra < rankResponse {
		return rb > ra
	}
	switch {
	case a.Final != b.Final:
		return b.Final
	case (a.Advice == AdvisesNoRetry) != (b.Advice == AdvisesNoRetry):
		return b.Advice == AdvisesNoRetry
	case a.HasRetryAfter && b.HasRetryAfter:
		return b.RetryAfter >= a.RetryAfter
	}
	return !a.HasRetryAfter
}

const (
	rankNoResponse = iota
	rankTimedOut   // the attempt timed out: its response may still come
	rankResponse
)

func (r *Result) failureRank() int {
	switch r.Cause {
	case CauseStatus:
		return rankResponse
	case CauseAttemptTimeout:
		return rankTimedOut
	}
	return rankNoResponse
}
