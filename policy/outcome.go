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
	OutcomeSuccess:   {"success", "No attempt failed; the first one's answer, or that of its hedge, was relayed."},
	OutcomeRecovered: {"recovered", "An attempt failed, another one brought a response that was no failure, and it was relayed."},

	OutcomeClientGone:     {"client_gone", "The client left before it had its response."},
	OutcomeRequestBroken:  {"request_broken", "The client's body was malformed or cut off."},
	OutcomeRequestTimeout: {"request_timeout", "The client sent its request too slowly and got 408."},
	OutcomeResponseBroken: {"response_broken", "The response was cut off after its head was relayed, and the client was shown so."},
	OutcomeRefused:        {"refused", "The request broke the protocol or a limit and was refused; nothing was sent to the upstream."},
	OutcomeUpgraded:       {"upgraded", "The connection was upgraded and became a byte tunnel."},

	OutcomeFailFast:        {"fail_fast", "The upstream was known to be down and the request was answered 503 at once."},
	OutcomeQueueDropped:    {"queue_dropped", "The request waited for a stopped upstream and lost its place to newer ones."},
	OutcomeQueueTimeout:    {"queue_timeout", "The request waited for a stopped upstream as long as allowed."},
	OutcomeOverloaded:      {"overloaded", "The upstream had as many requests at once as it bears, and the request was answered 503."},
	OutcomeFallback:        {"fallback", "All else failed and the configured fallback answered."},
	OutcomeRateLimitPause:  {"rate_limit_pause", "The upstream had asked those with the same key for a pause (429); the request had no time to wait for its end and was answered 429 without being sent."},
	OutcomeRateLimited:     {"rate_limited", "The upstream's rate limit (RETRYPROXY_RATE_LIMIT) had no turn for the request within the time that it may wait; it was answered 429 without being sent."},
	OutcomeClientThrottled: {"client_throttled", "The upstream rejects nearly everything; the request was answered 503 without being sent (RETRYPROXY_CLIENT_THROTTLING)."},
})

// fillGaveUp derives the texts of the gave_up outcomes from the reasons.
func fillGaveUp(texts [numOutcomes]text) [numOutcomes]text {
	for r := firstWhyNot; r < numReasons; r++ {
		texts[GaveUp(r)] = text{"gave_up_" + reasonTexts[r].label, "The request failed and was not retried (again). " + reasonTexts[r].explain}
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
