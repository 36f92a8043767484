package policy

import "github.com/retryproxy/retryproxy/policy/internal/labels"

// Outcome is the result of a request. Each request has exactly one, so outcomes add up to
// requests. Its String is the value of the metric label `outcome`.
type Outcome uint8

// The outcomes, a closed set. Every reason against a retry has its own gave_up outcome, in
// the same order; see GaveUp.
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
	OutcomeGaveUpRateLimited
	OutcomeGaveUpSwitchedOff
	OutcomeGaveUpDryRun
	OutcomeGaveUpNoDescriptors
	OutcomeGaveUpAskedNotToRetry
	OutcomeGaveUpQuotaExhausted
	OutcomeGaveUpRequestTooLarge
	OutcomeGaveUpUntrustedCertificate

	OutcomeClientGone
	OutcomeRequestBroken
	OutcomeRequestTimeout
	OutcomeResponseBroken
	OutcomeStreamCut
	OutcomeRefused
	OutcomeUpgraded

	OutcomeFailFast
	OutcomeQueueDropped
	OutcomeQueueTimeout
	OutcomeOverloaded
	OutcomeFallback
	OutcomeRateLimitPause
	OutcomeRateLimited
	numOutcomes
)

// NumOutcomes is the number of outcomes, for arrays indexed by Outcome.
const NumOutcomes = int(numOutcomes)

var outcomeTexts = fillGaveUp([numOutcomes]labels.Text{
	OutcomeSuccess:   {Label: "success", Words: "good at the first attempt", Explain: "No attempt failed. The response of the first attempt, or of its hedge, was relayed."},
	OutcomeRecovered: {Label: "recovered", Words: "recovered by a retry", Explain: "An attempt failed, and the good response of a later one was relayed."},

	OutcomeClientGone:     {Label: "client_gone", Words: "the client left", Explain: "The client left before it got its response."},
	OutcomeRequestBroken:  {Label: "request_broken", Words: "the request body was cut off", Explain: "The client's body was malformed or cut off."},
	OutcomeRequestTimeout: {Label: "request_timeout", Words: "the client was too slow (408)", Explain: "The client sent its request too slowly and got 408."},
	OutcomeResponseBroken: {Label: "response_broken", Words: "the response was cut off", Explain: "The response was cut off after its headers were relayed. The client can see that it is incomplete."},
	OutcomeStreamCut:      {Label: "stream_cut", Words: "the event stream was cut off", Explain: "An event stream (text/event-stream) was cut off after its headers were relayed. The client can see that it is incomplete."},
	OutcomeRefused:        {Label: "refused", Words: "refused: malformed or over a limit", Explain: "The request broke the protocol or a limit and was refused; nothing was sent to the upstream."},
	OutcomeUpgraded:       {Label: "upgraded", Words: "upgraded, such as to WebSocket", Explain: "The connection was upgraded and became a byte tunnel."},

	OutcomeFailFast:       {Label: "fail_fast", Words: "failed: the circuit breaker was open", Explain: "The circuit breaker was open, and the request was answered with 503 at once."},
	OutcomeQueueDropped:   {Label: "queue_dropped", Words: "failed: dropped from the full queue", Explain: "The request was queued while the circuit breaker was open, and was dropped from the full queue in favour of newer requests."},
	OutcomeQueueTimeout:   {Label: "queue_timeout", Words: "failed: queued for too long", Explain: "The request was queued while the circuit breaker was open, until its time in the queue ended."},
	OutcomeOverloaded:     {Label: "overloaded", Words: "failed: over the concurrency limit", Explain: "The upstream had as many requests in flight as the concurrency limit allows, and the request was answered with 503."},
	OutcomeFallback:       {Label: "fallback", Words: "answered by the fallback", Explain: "All attempts failed, and the configured fallback answered."},
	OutcomeRateLimitPause: {Label: "rate_limit_pause", Words: "not sent: a rate-limit pause was in force", Explain: "A rate-limit pause (429) was in force for this key, and was longer than the time left for the request. The request was not sent and was answered with 429."},
	OutcomeRateLimited:    {Label: "rate_limited", Words: "not sent: over the rate limit", Explain: "The rate limit (RETRYPROXY_RATE_LIMIT) had no slot for the request within RETRYPROXY_RATE_LIMIT_WAIT. The request was not sent and was answered with 429."},
})

// fillGaveUp derives the texts of the gave_up outcomes from the reasons.
func fillGaveUp(texts [numOutcomes]labels.Text) [numOutcomes]labels.Text {
	for r := firstWhyNot; r < numReasons; r++ {
		texts[GaveUp(r)] = labels.Text{Label: "gave_up_" + reasonTexts[r].Label, Words: gaveUpWords(r), Explain: "The request failed without a further retry. " + reasonTexts[r].Explain}
	}
	return texts
}

// gaveUpWords returns the phrase of the outcome of a request that was not retried because of r.
func gaveUpWords(r Reason) string {
	if r == ReasonRetriesExhausted {
		return "failed: all retries were used"
	}
	return "not retried: " + reasonTexts[r].Words
}

// GaveUp returns the outcome of a failed request that was not retried because of why. The
// client got the upstream's failing response, or our own 502, 503 or 504. If why is no
// reason against a retry, it returns OutcomeGaveUpNotInRetryOn.
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

// String returns the metric label, or "invalid" for a value outside the set.
func (o Outcome) String() string { return labels.Lookup(outcomeTexts[:], int(o)).Label }

// Words returns a phrase for people, in place of the label.
func (o Outcome) Words() string { return labels.Lookup(outcomeTexts[:], int(o)).Words }

// WordsFor is Words for a request with this method.
func (o Outcome) WordsFor(method string) string {
	if o == OutcomeGaveUpNotIdempotent {
		return "not retried: " + ReasonNotIdempotent.WordsFor(method)
	}
	return o.Words()
}

// Explain returns one sentence for a reader of metrics.
func (o Outcome) Explain() string { return labels.Lookup(outcomeTexts[:], int(o)).Explain }

// AllOutcomes lists the set in order. The slice belongs to the caller.
func AllOutcomes() []Outcome { return labels.Sequence[Outcome](0, numOutcomes) }
