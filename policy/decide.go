package policy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/status"
)

// HeaderLookup finds a response field by its name, whatever the case of the
// name. With several fields of that name it gives the first. The value stays
// the implementer's and is not kept.
type HeaderLookup interface {
	Lookup(name string) (value []byte, ok bool)
}

// Attempt is what one attempt brought.
type Attempt struct {
	Cause  Cause
	Status int        // 100..999, when Cause is CauseStatus
	Final  bool       // an inner retryproxy marked its response as given up, or a gRPC server said not to repeat (grpc-retry-pushback-ms)
	GRPC   GRPCStatus // of a gRPC call's answer, as far as it is known before a message; OK else

	Unwanted bool // the response says that a retry is not wanted (x-should-retry: false)
	Wanted   bool // the response says that one is (x-should-retry: true), for a status of 400 or more

	RetryAfter    time.Duration // as package retryafter gave it; never negative
	HasRetryAfter bool

	Header HeaderLookup // the response's fields, for retriable-header; may be nil
}

// JudgedStatus returns the status by which a circuit breaker judges the upstream: the one that the gRPC
// status stands for, or that of the response.
func (a *Attempt) JudgedStatus() int {
	if s := a.GRPC.HTTPStatus(); s != 200 {
		return s
	}
	return a.Status
}

// Replay says whether the request body can be sent once more.
type Replay uint8

// The choices of Replay, a closed set. The loop says ReplayWhole also when
// nothing of the body was read yet.
const (
	ReplayWhole      Replay = iota // every byte read so far is kept, or there is no body
	ReplayTooLarge                 // the body went past the per-request cap
	ReplayBufferFull               // the process-wide cap was reached
	ReplayUnfinished               // the upload is not whole and cannot be finished
)

// whyNot is the reason against a retry, ReasonNone when there is none.
func (r Replay) whyNot() Reason {
	switch r {
	case ReplayWhole:
		return ReasonNone
	case ReplayTooLarge:
		return ReasonBodyTooLarge
	case ReplayBufferFull:
		return ReasonRetryBufferFull
	}
	return ReasonBodyUnfinished // also for a value outside the set: not repeating is the safe answer
}

// Situation is where a request stands when an attempt has ended.
type Situation struct {
	Retries       int           // retries made so far, free retries not counted
	MaxRetries    int           // after the layered-retries rule; see LayeredRetries
	Safe          bool          // a second run does no harm; see Policy.Retriable
	Replay        Replay        // can the body be sent again?
	Left          time.Duration // until the request's deadline; none left when <= 0; Forever without a deadline
	Elapsed       time.Duration // since the first attempt began
	Previous      time.Duration // the wait before this attempt, whatever set it; 0 before the first
	FreeRetryUsed bool          // the one free repeat after an idle close was used
	Draining      bool          // the process is shutting down
	Layered       bool          // the layered-retries rule left no retries
}

// Decision is what to do after an attempt.
type Decision struct {
	Class Class         // of the attempt, for metrics
	Retry bool          // send again after Wait
	Free  bool          // at once, outside budget and count, on a freshly dialled connection
	Wait  time.Duration // 0 or more; less than Situation.Left
	Why   Reason        // with Retry: what for; else why not, or ReasonNone when the response is no failure
}

// Policy is what a route wants done about failures. It is read by all requests
// of the route at once and must not be changed after its first use. The zero
// value retries nothing.
type Policy struct {
	RetryOn    RetryOn
	MaxRetries int              // 0 = none
	Methods    MethodSet        // retried without a key; the zero value is the idempotent methods of RFC 9110
	Unsafe     bool             // repeat every method
	Rejected   status.Set       // retried whatever the method; the zero value is 429
	Backoff    backoff.Strategy // nil waits not at all
	Throttled  backoff.Strategy // after a 429 or a status of Rejected without Retry-After; nil = Backoff
}

// Retryable reports whether a request may run twice without harm: its method
// is in Methods, it carries an Idempotency-Key, or the route said so.
// It does not allocate.
func (p *Policy) Retryable(method []byte, hasKey bool) bool {
	return p.Unsafe || hasKey || p.Methods.Has(method)
}

// Decide says what to do after attempt a of a request in situation s.
//
// The order is fixed, so that the reason given is always the first that holds:
// is the response final anyway; may it be retried (mark of an inner proxy,
// wish of the upstream, method, count and window, body, nesting, drain); how long is the wait; does
// it fit in the time left; and last, because asking takes a token, does the
// budget allow it.
//
// b is the budget that the upstream's requests share, nil for none. now is
// monotonic time of any origin, the same for all calls on one budget. r is the
// source of jitter. Decide does not allocate and is safe for concurrent use
// when r is.
func (p *Policy) Decide(a *Attempt, s *Situation, b *budget.Budget, now time.Duration, r backoff.Rand) Decision {
	d := Decision{Class: p.Classify(a)}
	if d.Class == ClassNone {
		return d
	}
	if a.Cause == CauseIdleClose && !s.FreeRetryUsed {
		return p.decideFree(d, s)
	}
	if d.Why = p.whyNot(a, s, d.Class); d.Why != ReasonNone {
		return d
	}
	if d.Wait, d.Why = p.wait(a, s, r); d.Why != ReasonNone {
		d.Wait = 0
		return d
	}
	if b != nil && !b.TryRetry(now) {
		d.Wait, d.Why = 0, ReasonBudgetExhausted
		return d
	}
	d.Retry, d.Why = true, p.whatFor(a)
	return d
}

// decideFree allows the retry after an idle close whatever the count, window,
// budget, nesting, drain and retry-on say: the upstream saw nothing, the close
// is an effect of our own pooling, and after a restart every pooled connection
// is stale at once. Only a body that is gone or a deadline that is over stand
// against it.
func (p *Policy) decideFree(d Decision, s *Situation) Decision {
	if d.Why = s.Replay.whyNot(); d.Why != ReasonNone {
		return d
	}
	if s.Left <= 0 {
		d.Why = ReasonDeadline
		return d
	}
	d.Retry, d.Free, d.Why = true, true, ReasonIdleClose
	return d
}

// Fails reports whether a is a failure: a response that RetryOn counts as one,
// or none at all.
func (p *Policy) Fails(a *Attempt) bool { return p.Classify(a) != ClassNone }

// Classify says how sure we are; ClassNone when the response is no failure.
func (p *Policy) Classify(a *Attempt) Class {
	switch {
	case a.Cause.Sure():
		return NotSent
	case a.Cause != CauseStatus:
		return Unknown
	case !p.RetryOn.matches(a):
		if p.RetryOn.yields(a) {
			return Unknown
		}
		return ClassNone
	case p.Rejected.Has(a.Status), a.GRPC == GRPCUnavailable, a.GRPC == GRPCResourceExhausted:
		return Rejected
	}
	return Unknown
}

// whyNot is the first reason against a retry, ReasonNone when none holds.
func (p *Policy) whyNot(a *Attempt, s *Situation, c Class) Reason {
	switch {
	case a.Final && a.Cause == CauseStatus:
		return ReasonUpstreamGaveUp
	case a.Unwanted && a.Cause == CauseStatus:
		return ReasonAskedNotToRetry
	case a.Cause != CauseStatus && !p.RetryOn.matches(a):
		return ReasonNotInRetryOn
	case c == Unknown && !s.Safe && !p.RetryOn.grpcOptsIn(a):
		return ReasonNotIdempotent
	case p.MaxRetries <= 0:
		return ReasonRetriesOff
	case s.MaxRetries <= 0 && s.Layered:
		return ReasonLayered
	case s.MaxRetries <= 0:
		return ReasonRetriesOff
	case s.Retries >= s.MaxRetries:
		return ReasonRetriesExhausted
	case s.Replay != ReplayWhole:
		return s.Replay.whyNot()
	case s.Layered:
		return ReasonLayered
	case s.Draining:
		return ReasonDraining
	}
	return ReasonNone
}

// wait is how long to wait, or the reason why no wait fits in the time left.
func (p *Policy) wait(a *Attempt, s *Situation, r backoff.Rand) (time.Duration, Reason) {
	if s.Left <= 0 {
		return 0, ReasonDeadline
	}
	room := s.Left
	least := backoff.FloorOf(p.Backoff)
	step := backoff.Step{Retry: s.Retries, Previous: s.Previous, Elapsed: s.Elapsed}
	if a.HasRetryAfter && a.Cause == CauseStatus {
		if a.RetryAfter >= room {
			return 0, ReasonRetryAfterTooLong
		}
		w := max(a.RetryAfter, least)
		if w >= room {
			return 0, ReasonDeadline
		}
		return w + p.spread(step, room-w, r), ReasonNone
	}
	b := p.Backoff
	if a.Cause == CauseStatus && (a.Status == 429 || p.Rejected.Has(a.Status)) && p.Throttled != nil {
		b = p.Throttled
	}
	w := max(backoff.WaitOf(b, step, r), least)
	if w >= room {
		return 0, ReasonDeadline
	}
	return w, ReasonNone
}

// spread is what is added to a Retry-After, so that clients who were told the
// same second do not come back in the same instant: uniform in [0, backoff],
// where backoff is the longest wait of this step, but no more than half of the
// room that is left behind the Retry-After. The half keeps two promises: bad
// luck in the draw never turns a wait that fits into one that does not, and
// the attempt has time of its own.
func (p *Policy) spread(s backoff.Step, room time.Duration, r backoff.Rand) time.Duration {
	return backoff.UpTo(r, min(backoff.CeilingOf(p.Backoff, s, r), room/2))
}

// causeReasons says what a retry after a failure without a response is for.
var causeReasons = [numCauses]Reason{
	CauseDial:           ReasonConnectFailure,
	CauseTLS:            ReasonTLSFailure,
	CauseIdleClose:      ReasonIdleClose,
	CauseRefusedStream:  ReasonRefusedStream,
	CauseReset:          ReasonReset,
	CauseAttemptTimeout: ReasonAttemptTimeout,
	CauseMalformed:      ReasonMalformed,
}

// whatFor says what a retry after a is for. A status that is listed itself is
// named before a field that is listed too.
func (p *Policy) whatFor(a *Attempt) Reason {
	if a.Cause != CauseStatus {
		return causeReasons[a.Cause]
	}
	if !p.RetryOn.hasCode(a.Status) {
		if p.RetryOn.grpc.has(a.GRPC) {
			return ReasonGRPC
		}
		if !p.RetryOn.hasField(a) {
			return ReasonAskedToRetry
		}
		return ReasonHeader
	}
	switch a.Status {
	case 429:
		return ReasonStatus429
	case 500:
		return ReasonStatus500
	case 502:
		return ReasonStatus502
	case 503:
		return ReasonStatus503
	case 504:
		return ReasonStatus504
	}
	return ReasonStatusOther
}
