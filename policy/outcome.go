package policy

// Outcome is what became of a request. Each request has exactly one, so that
// outcomes add up to requests. Its String is the value of the metric label
// `outcome`.
type Outcome uint8

// The outcomes, a closed set. Every reason against a retry has its own
// gave_up outcome, in the same order; see GaveUp.
const (
	OutcomeSuccess Outcome = iota
	OutcomeRecovered

	OutcomeGaveUpNotIdempotent
	OutcomeGaveUpRetriesExhausted
	OutcomeGaveUpRetriesOff
	OutcomeGaveUpBudgetExhausted
	OutcomeGaveUpDeadline
	OutcomeGaveUpRetryAfterTooLong
	OutcomeGaveUpBodyTooLarge
	OutcomeGaveUpRetryBufferFull
	OutcomeGaveUpBodyUnfinished
	OutcomeGaveUpResponseTooLarge
	OutcomeGaveUpDraining
	OutcomeGaveUpUpstreamGaveUp
	OutcomeGaveUpLayered
	OutcomeGaveUpNotInRetryOn
	OutcomeGaveUpRateLimitPause
	OutcomeGaveUpClientThrottled
	OutcomeGaveUpRateLimited
	OutcomeGaveUpSwitchedOff
	OutcomeGaveUpDryRun
	OutcomeGaveUpNoDescriptors

	OutcomeClientGone
	OutcomeRequestBroken
	OutcomeRequestTimeout
	OutcomeResponseBroken
	OutcomeRefused
	OutcomeUpgraded

	OutcomeFailFast
	OutcomeQueueDropped
	OutcomeQueueTimeout
	OutcomeOverloaded
	OutcomeFallback
	OutcomeRateLimitPause
	OutcomeClientThrottled
	OutcomeRateLimited
	numOutcomes
)

// NumOutcomes is the number of outcomes, for arrays indexed by Outcome.
const NumOutcomes = int(numOutcomes)

var outcomeTexts = fillGaveUp([numOutcomes]text{
	OutcomeSuccess:   {"success", "No attempt failed. The response of the first attempt, or of its hedge, was relayed."},
	OutcomeRecovered: {"recovered", "An attempt failed, a later one got a response that was no failure, and it was relayed."},

	OutcomeClientGone:     {"client_gone", "The client left before it got its response."},
	OutcomeRequestBroken:  {"request_broken", "The client's body was malformed or cut off."},
	OutcomeRequestTimeout: {"request_timeout", "The client sent its request too slowly and got 408."},
	OutcomeResponseBroken: {"response_broken", "The response was cut off after its headers were relayed, and the client could see that."},
	OutcomeRefused:        {"refused", "The request broke the protocol or a limit and was refused; nothing was sent to the upstream."},
	OutcomeUpgraded:       {"upgraded", "The connection was upgraded and became a byte tunnel."},

	OutcomeFailFast:        {"fail_fast", "The circuit breaker was open, and the request was answered with 503 at once."},
	OutcomeQueueDropped:    {"queue_dropped", "The request was queued while the circuit breaker was open and was dropped for newer ones."},
	OutcomeQueueTimeout:    {"queue_timeout", "The request was queued while the circuit breaker was open, for as long as allowed."},
	OutcomeOverloaded:      {"overloaded", "The upstream had as many requests in flight as it can bear, and the request was answered with 503."},
	OutcomeFallback:        {"fallback", "All attempts failed, and the configured fallback answered."},
	OutcomeRateLimitPause:  {"rate_limit_pause", "The upstream had asked for a pause (429) by requests with this key. The request had no time to wait for its end and was answered with 429 without being sent."},
	OutcomeRateLimited:     {"rate_limited", "The rate limit (RETRYPROXY_RATE_LIMIT) had no slot for the request within the time that it may wait. It was answered with 429 without being sent."},
	OutcomeClientThrottled: {"client_throttled", "The upstream rejects nearly all requests. The request was answered with 503 without being sent (RETRYPROXY_CLIENT_THROTTLING)."},
})

// fillGaveUp derives the texts of the gave_up outcomes from the reasons.
func fillGaveUp(texts [numOutcomes]text) [numOutcomes]text {
	for r := firstWhyNot; r < numReasons; r++ {
		texts[GaveUp(r)] = text{"gave_up_" + reasonTexts[r].label, "The request failed and was not retried, or not again. " + reasonTexts[r].explain}
	}
	return texts
}

// GaveUp is the outcome of a failed request that was not retried because of
// why: the upstream's failing response, or our own 502, 503 or 504, was given.
// A why that is no reason against a retry gives gave_up_not_in_retry_on.
func GaveUp(why Reason) Outcome {
	if !why.WhyNot() {
		return OutcomeGaveUpNotInRetryOn
	}
	return OutcomeGaveUpNotIdempotent + Outcome(why-firstWhyNot)
}

// GaveUp reports whether o is one of the gave_up outcomes.
func (o Outcome) GaveUp() bool {
	return o >= OutcomeGaveUpNotIdempotent && o < OutcomeGaveUpNotIdempotent+Outcome(numReasons-firstWhyNot)
}

// String is the metric label. A value outside the set gives "invalid".
func (o Outcome) String() string { return lookup(outcomeTexts[:], int(o)).label }

// Explain is one sentence for a reader of metrics.
func (o Outcome) Explain() string { return lookup(outcomeTexts[:], int(o)).explain }

// AllOutcomes lists the set in order. The slice belongs to the client.
func AllOutcomes() []Outcome { return sequence[Outcome](0, numOutcomes) }
