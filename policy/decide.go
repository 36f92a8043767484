package policy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/status"
)

// HeaderLookup finds a header by its name, in any case. If several headers have that name, it
// returns the first. The value belongs to the implementer and is not kept.
type HeaderLookup interface {
	Lookup(name string) (value []byte, ok bool)
}

// Result is what one attempt came to.
type Result struct {
	Cause  Cause
	Status int        // 100..999, when Cause is CauseStatus
	Final  bool       // an inner retryproxy marked its response as given up
	GRPC   GRPCStatus // the status of a gRPC call that ended before its first message, else OK

	Advice Advice // what the response says about a retry

	RetryAfter    time.Duration // from package retryafter; never negative
	HasRetryAfter bool

	Header HeaderLookup // for retriable-header; may be nil
}

// Advice is what a response says about a retry, whatever its status.
type Advice uint8

// The choices of Advice, a closed set.
const (
	NoAdvice       Advice = iota
	AdvisesRetry          // x-should-retry: true
	AdvisesNoRetry        // x-should-retry: false, or a grpc-retry-pushback-ms that is no wait
)

// JudgedStatus returns the status by which a circuit breaker judges the upstream: the one that the gRPC
// status stands for, or that of the response.
func (r *Result) JudgedStatus() int {
	if s := r.GRPC.HTTPStatus(); s != 200 {
		return s
	}
	return r.Status
}

// Replay is whether the request body can be sent once more.
type Replay uint8

// The choices of Replay, a closed set. ReplayWhole also applies while nothing of the body has been
// read.
const (
	ReplayWhole      Replay = iota // every byte read so far is kept, or there is no body
	ReplayTooLarge                 // the body exceeded the cap of a request
	ReplayBufferFull               // the cap of the process was reached
	ReplayUnfinished               // the upload is incomplete and cannot be completed
)

// whyNot returns the reason against a retry, or ReasonNone.
func (r Replay) whyNot() Reason {
	switch r {
	case ReplayWhole:
		return ReasonNone
	case ReplayTooLarge:
		return ReasonBodyTooLarge
	case ReplayBufferFull:
		return ReasonRetryBufferFull
	}
	return ReasonBodyUnfinished // also for a value outside the set: not retrying is the safe answer
}

// Situation is the state of a request when an attempt has ended.
type Situation struct {
	Retries       int           // retries made so far, without free ones
	MaxRetries    int           // after the layered-retries rule; see LayeredRetries
	Safe          bool          // a second run does no harm; see Policy.Retryable
	Replay        Replay        // whether the body can be sent again
	Left          time.Duration // until the request's deadline; none if <= 0; Forever without a deadline
	Elapsed       time.Duration // since the first attempt began
	Previous      time.Duration // the wait before this attempt, for any reason; 0 before the first
	FreeRetries   int           // free retries made so far
	OthersPass    bool          // the upstream has responded to another request since the last attempt began
	AskedWaitUsed bool          // a retry was made with TokenWaived
	Draining      bool          // the process is shutting down
	Layered       bool          // the layered-retries rule allowed no retries
}

// Decision is what to do after an attempt.
type Decision struct {
	Class Class         // class of the attempt, for metrics
	Retry bool          // send the request again after Wait
	Free  bool          // at once, not counted, without a token, on a new connection
	Wait  time.Duration // 0 or more; less than Situation.Left
	Token TokenClaim    // with Retry, what it has of the budget
	Why   Reason        // with Retry, what the retry is for; else why there is none, or ReasonNone if the response is no failure
}

// LacksToken reports whether the budget had no token for the retry.
func (d *Decision) LacksToken() bool {
	return d.Token == TokenQueued || d.Why == ReasonBudgetExhausted
}

// TokenClaim is what a retry has of the retry budget.
type TokenClaim uint8

// The claims, a closed set.
const (
	TokenNone   TokenClaim = iota // nothing: it needs no token
	TokenTaken                    // it has a token
	TokenQueued                   // it must queue for a token before it is sent
	TokenWaived                   // nothing: the upstream asked for the wait; once per request
)

// Policy is how a route handles failures. All requests of the route read it at the same time, so it
// must not be changed after its first use. The zero value retries nothing.
type Policy struct {
	RetryOn    RetryOn
	MaxRetries int              // 0 = none
	Methods    MethodSet        // retried without a key; the zero value is the idempotent methods of RFC 9110
	Unsafe     bool             // retry every method
	Rejected   status.Set       // statuses retried for every method; the zero value is 429
	Backoff    backoff.Strategy // nil does not wait
	Throttled  backoff.Strategy // after a 429 or a status of Rejected without Retry-After; nil = Backoff

	// QueueForBudget is set if a request that can wait matters more than load: without a token, its
	// retry queues for the next one, and one wait that the upstream asks for costs none. Otherwise a
	// retry without a token is given up.
	QueueForBudget bool
}

// Retryable reports whether a request may run twice without harm: its method is in Methods, it
// carries an Idempotency-Key, or the route allows it. It does not allocate.
func (p *Policy) Retryable(method []byte, hasKey bool) bool {
	return p.Unsafe || hasKey || p.Methods.Has(method)
}

// Decide returns what to do after an attempt came to res, of a request in situation s: it is Again and
// then After, for whoever has nothing to do between them.
func (p *Policy) Decide(res *Result, s *Situation, b *budget.Budget, now time.Duration, r backoff.Rand) Decision {
	d := p.Again(res, s)
	if !d.Retry || d.Free {
		return d
	}
	return p.After(d, res, s, b, now, r)
}

// Again returns whether to send the request again after an attempt came to res, in situation s. Unless
// the retry is free, After then has the last word. In between, the caller does what takes time or
// memory, such as reading the rest of the request body.
//
// The checks have a fixed order, and the first that fails gives the reason: is the response a
// failure; may the request be retried (mark of an inner proxy, request of the upstream, method,
// count, body, layered retries, drain); can any wait fit in the time left. It draws nothing, takes
// nothing and does not allocate.
func (p *Policy) Again(res *Result, s *Situation) Decision {
	d := Decision{Class: p.Classify(res)}
	if d.Class == ClassNone {
		return d
	}
	if res.Cause.unprocessed() && s.mayRetryFree() {
		return p.decideFree(res, d, s)
	}
	if d.Why = p.whyNot(res, s, d.Class); d.Why != ReasonNone {
		return d
	}
	if d.Why = p.tooLong(res, s, p.shortest(res, s)); d.Why != ReasonNone {
		return d
	}
	d.Retry, d.Why = true, p.whatFor(res)
	return d
}

// After returns the retry d of Again with its wait and what it has of the budget, or why it is not made
// after all: meanwhile the body cannot be replayed any more, a drain began, or time has passed; or there
// is no token, now or in the time left. It draws the wait, once. The budget comes last because asking
// takes a token.
//
// b is the budget shared by all requests to the upstream, or nil. now is monotonic time of any
// origin, the same for all calls on one budget. r is the source of jitter. After does not
// allocate. It is safe for concurrent use if r is.
func (p *Policy) After(d Decision, res *Result, s *Situation, b *budget.Budget, now time.Duration, r backoff.Rand) Decision {
	why := s.Replay.whyNot()
	if why == ReasonNone && s.Draining {
		why = ReasonDraining
	}
	if why == ReasonNone {
		d.Wait, why = p.wait(res, s, r)
	}
	if why == ReasonNone && b != nil {
		d.Token, why = p.claim(res, s, b, now)
	}
	if why != ReasonNone {
		return Decision{Class: d.Class, Why: why}
	}
	return d
}

// minAskedWait is the shortest wait for which the upstream pays: whoever asks for it knows when it can
// serve the request. It is the resolution of Retry-After. For a shorter one, an upstream that always
// responds 429 would get twice the load at once.
const minAskedWait = time.Second

// claim gets the token that a retry needs, or returns why there is none.
func (p *Policy) claim(res *Result, s *Situation, b *budget.Budget, now time.Duration) (TokenClaim, Reason) {
	switch {
	case p.QueueForBudget && !s.AskedWaitUsed && res.Cause == CauseStatus && res.HasRetryAfter && res.RetryAfter >= minAskedWait:
		return TokenWaived, ReasonNone
	case b.TryRetry(now):
		return TokenTaken, ReasonNone
	case p.QueueForBudget && b.Delay(now) < s.Left:
		return TokenQueued, ReasonNone
	}
	return TokenNone, ReasonBudgetExhausted
}

// maxFreeRetries limits the free retries of a request, so that one which the upstream never
// processes costs something in the end.
const maxFreeRetries = 10

// mayRetryFree reports whether a retry of a request that was not processed may be free: the first
// one, and further ones as long as the upstream responds to others.
func (s *Situation) mayRetryFree() bool {
	return s.FreeRetries == 0 || s.OthersPass && s.FreeRetries < maxFreeRetries
}

// decideFree allows the retry of a request that was certainly not processed, because a pooled
// connection was stale or ended after as many requests as it takes, or the stream was refused.
// Count, budget, layered retries, drain and retry-on do not apply: the upstream did no
// work, and the failure is an effect of our own pooling. When an upstream restarts, every pooled
// connection becomes stale at once. Only a body that cannot be replayed or a deadline that has
// passed prevents the retry.
func (p *Policy) decideFree(res *Result, d Decision, s *Situation) Decision {
	if d.Why = s.Replay.whyNot(); d.Why != ReasonNone {
		return d
	}
	if s.Left <= 0 {
		d.Why = ReasonDeadline
		return d
	}
	d.Retry, d.Free, d.Why = true, true, causeReasons[res.Cause]
	return d
}

// Fails reports whether a is a failure: a response that RetryOn counts as one, or no response.
func (p *Policy) Fails(res *Result) bool { return p.Classify(res) != ClassNone }

// Classify returns the class of the failure, or ClassNone if the response is no failure.
func (p *Policy) Classify(res *Result) Class {
	switch {
	case res.Cause.Sure():
		return NotSent
	case res.Cause != CauseStatus:
		return Unknown
	case !p.RetryOn.matches(res):
		if p.RetryOn.yields(res) {
			return Unknown
		}
		return ClassNone
	case p.Rejected.Has(res.Status), res.GRPC == GRPCUnavailable, res.GRPC == GRPCResourceExhausted:
		return Rejected
	}
	return Unknown
}

// whyNot returns the first reason against a retry, or ReasonNone.
func (p *Policy) whyNot(res *Result, s *Situation, c Class) Reason {
	switch {
	case res.Final && res.Cause == CauseStatus:
		return ReasonUpstreamGaveUp
	case res.Advice == AdvisesNoRetry && res.Cause == CauseStatus:
		return ReasonAskedNotToRetry
	case res.Cause == CauseUntrusted:
		return ReasonUntrustedCertificate // the next handshake would fail too
	case res.Cause != CauseStatus && !p.RetryOn.matches(res):
		return ReasonNotInRetryOn
	case c == Unknown && !s.Safe && !p.RetryOn.grpcOptsIn(res):
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

// wait returns how long to wait, or the reason why no wait fits in the time left.
func (p *Policy) wait(res *Result, s *Situation, r backoff.Rand) (time.Duration, Reason) {
	w := p.asked(res)
	if !asksWait(res) {
		w = max(backoff.WaitOf(p.strategy(res), s.step(), r), w)
	}
	if why := p.tooLong(res, s, w); why != ReasonNone {
		return 0, why
	}
	if asksWait(res) {
		w += p.spread(s.step(), s.Left-w, r)
	}
	return w, ReasonNone
}

// tooLong returns why the wait w does not fit in the time left, or ReasonNone if it does.
func (p *Policy) tooLong(res *Result, s *Situation, w time.Duration) Reason {
	switch {
	case s.Left > 0 && asksWait(res) && res.RetryAfter >= s.Left:
		return ReasonRetryAfterTooLong
	case w >= s.Left:
		return ReasonDeadline
	}
	return ReasonNone
}

// shortest returns a wait that the retry cannot be sooner than.
func (p *Policy) shortest(res *Result, s *Situation) time.Duration {
	w, b := p.asked(res), p.strategy(res)
	if k, ok := b.(backoff.Ranger); ok && !asksWait(res) && backoff.Bounded(b) {
		w = max(w, k.Range(s.step()).Min)
	}
	return w
}

// asksWait reports whether the response asks for a wait.
func asksWait(res *Result) bool { return res.HasRetryAfter && res.Cause == CauseStatus }

// asked returns the wait that the response asks for, and not less than what the backoff never falls below.
func (p *Policy) asked(res *Result) time.Duration {
	least := max(backoff.FloorOf(p.Backoff), 0)
	if asksWait(res) {
		return max(res.RetryAfter, least)
	}
	return least
}

// strategy returns the backoff after the result res; nil does not wait.
func (p *Policy) strategy(res *Result) backoff.Strategy {
	if res.Cause == CauseStatus && (res.Status == 429 || p.Rejected.Has(res.Status)) && p.Throttled != nil {
		return p.Throttled
	}
	return p.Backoff
}

func (s *Situation) step() backoff.Step {
	return backoff.Step{Retry: s.Retries, Previous: s.Previous, Elapsed: s.Elapsed}
}

// spread returns what is added to a Retry-After, so that clients with the same Retry-After do not
// come back at the same instant. It is uniform in [0, backoff], where backoff is the longest wait
// of this step, but at most half of the time left after the Retry-After. The half keeps two
// promises: no draw turns a wait that fits into one that does not, and the attempt has time left.
func (p *Policy) spread(s backoff.Step, room time.Duration, r backoff.Rand) time.Duration {
	return backoff.UpTo(r, min(backoff.CeilingOf(p.Backoff, s, r), room/2))
}

// causeReasons says what a retry after a failure without a response is for.
var causeReasons = [numCauses]Reason{
	CauseDial:            ReasonConnectFailure,
	CauseTLS:             ReasonTLSFailure,
	CauseUntrusted:       ReasonTLSFailure,
	CauseIdleClose:       ReasonIdleClose,
	CauseRefusedStream:   ReasonRefusedStream,
	CauseReset:           ReasonReset,
	CauseAttemptTimeout:  ReasonAttemptTimeout,
	CauseMalformed:       ReasonMalformed,
	CauseHeadersTooLarge: ReasonResponseHeadersTooLarge,
}

// whatFor says what a retry after a is for. A status that is listed itself is
// named before a field that is listed too.
func (p *Policy) whatFor(res *Result) Reason {
	if res.Cause != CauseStatus {
		return causeReasons[res.Cause]
	}
	if !p.RetryOn.hasCode(res.Status) {
		if p.RetryOn.grpc.has(res.GRPC) {
			return ReasonGRPC
		}
		if !p.RetryOn.hasField(res) {
			return ReasonAskedToRetry
		}
		return ReasonHeader
	}
	switch res.Status {
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
