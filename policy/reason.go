package policy

import "github.com/retryproxy/retryproxy/policy/internal/labels"

// Reason is what a retry is for, or why there is none. Its String is the value of the metric label
// `reason` and of the header X-Retryproxy-Reason.
type Reason uint8

// The reasons, a closed set. Those up to ReasonAskedToRetry are what a retry is for; those from
// ReasonNotIdempotent on are why a failure was not retried.
const (
	ReasonNone Reason = iota // nothing to explain: the response is no failure

	ReasonConnectFailure
	ReasonTLSFailure
	ReasonIdleClose
	ReasonRefusedStream
	ReasonReset
	ReasonAttemptTimeout
	ReasonMalformed
	ReasonResponseHeadersTooLarge
	ReasonStatus429
	ReasonStatus500
	ReasonStatus502
	ReasonStatus503
	ReasonStatus504
	ReasonStatusOther
	ReasonHeader
	ReasonGRPC
	ReasonAskedToRetry

	ReasonNotIdempotent
	ReasonRetriesExhausted
	ReasonRetriesOff
	ReasonBudgetExhausted
	ReasonDeadline
	ReasonRetryAfterTooLong
	ReasonBodyTooLarge
	ReasonRetryBufferFull
	ReasonBodyUnfinished
	ReasonResponseTooLarge
	ReasonDraining
	ReasonUpstreamGaveUp
	ReasonLayered
	ReasonNotInRetryOn
	ReasonRateLimitPause
	ReasonRateLimited
	ReasonSwitchedOff
	ReasonDryRun
	ReasonNoDescriptors
	ReasonAskedNotToRetry
	ReasonQuotaExhausted
	ReasonRequestTooLarge
	ReasonUntrustedCertificate
	numReasons
)

// firstWhyNot is the first of the reasons against a retry.
const firstWhyNot = ReasonNotIdempotent

// NumReasons is the number of reasons, including ReasonNone, for arrays indexed by Reason.
const NumReasons = int(numReasons)

var reasonTexts = [numReasons]labels.Text{
	ReasonNone: {Label: "none", Words: "no failure", Explain: "The response was not a failure."},

	ReasonConnectFailure:          {Label: "connect_failure", Words: "no connection", Explain: "No connection to the upstream could be made, or the connection took no byte of the request."},
	ReasonTLSFailure:              {Label: "tls_failure", Words: "TLS handshake failed", Explain: "The TLS handshake with the upstream failed."},
	ReasonIdleClose:               {Label: "idle_close", Words: "idle connection closed", Explain: "The upstream closed a pooled connection without processing the request: while it was idle, with a 408, or with a GOAWAY."},
	ReasonRefusedStream:           {Label: "refused_stream", Words: "HTTP/2 stream refused", Explain: "The upstream refused the HTTP/2 stream without processing it: with REFUSED_STREAM, or with a GOAWAY on a new connection."},
	ReasonReset:                   {Label: "reset", Words: "connection lost", Explain: "The connection to the upstream was lost after the request was sent and before the response began: it was closed or reset, or its other end acknowledged nothing. The response of a gRPC call begins with its first message, and an event stream with its first content (RETRYPROXY_FIRST_CONTENT_TIMEOUT)."},
	ReasonAttemptTimeout:          {Label: "attempt_timeout", Words: "attempt timed out", Explain: "No response headers arrived within the attempt timeout."},
	ReasonMalformed:               {Label: "malformed", Words: "malformed response", Explain: "The upstream sent something that is not a valid response."},
	ReasonResponseHeadersTooLarge: {Label: "response_headers_too_large", Words: "response headers too large", Explain: "The headers of the response were larger than 64 KiB, or more than 100."},
	ReasonStatus429:               {Label: "status_429", Words: "429 Too Many Requests", Explain: "The upstream answered 429 Too Many Requests."},
	ReasonStatus500:               {Label: "status_500", Words: "500 Internal Server Error", Explain: "The upstream answered 500 Internal Server Error."},
	ReasonStatus502:               {Label: "status_502", Words: "502 Bad Gateway", Explain: "The upstream answered 502 Bad Gateway."},
	ReasonStatus503:               {Label: "status_503", Words: "503 Service Unavailable", Explain: "The upstream answered 503 Service Unavailable."},
	ReasonStatus504:               {Label: "status_504", Words: "504 Gateway Timeout", Explain: "The upstream answered 504 Gateway Timeout."},
	ReasonStatusOther:             {Label: "status_other", Words: "another status in RETRY_ON", Explain: "The upstream answered with another status that RETRYPROXY_RETRY_ON lists."},
	ReasonHeader:                  {Label: "header", Words: "a header in RETRY_ON", Explain: "The response had a header that RETRYPROXY_RETRY_ON names (retriable-header)."},
	ReasonGRPC:                    {Label: "grpc_status", Words: "gRPC status", Explain: "The gRPC call ended before any message with a status that RETRYPROXY_RETRY_ON lists."},
	ReasonAskedToRetry:            {Label: "asked_to_retry", Words: "the upstream asked for a retry", Explain: "The upstream answered with a status that RETRYPROXY_RETRY_ON does not list and asked for a retry (X-Should-Retry: true)."},

	ReasonNotIdempotent:        {Label: "not_idempotent", Words: "not idempotent and without an Idempotency-Key", Explain: "A retry might do the work twice: the method is not idempotent, there is no Idempotency-Key, and the route does not allow unsafe retries."},
	ReasonRetriesExhausted:     {Label: "retries_exhausted", Words: "all retries were used", Explain: "The request had used all its retries."},
	ReasonRetriesOff:           {Label: "retries_off", Words: "the route allows no retries", Explain: "The route allows no retries."},
	ReasonBudgetExhausted:      {Label: "budget_exhausted", Words: "the retry budget was empty", Explain: "The retry budget of the upstream was empty. If retryproxy is outbound, the budget would have had no token within the time left for the request."},
	ReasonDeadline:             {Label: "deadline", Words: "no time was left", Explain: "The time limit of the request had passed, or the wait did not fit into the time left."},
	ReasonRetryAfterTooLong:    {Label: "retry_after_too_long", Words: "the wait that the upstream asked for was too long", Explain: "The upstream asked for a wait (Retry-After or an exhausted rate limit) that was longer than the time left for the request, or longer than RETRYPROXY_RATE_LIMIT_PAUSE_MAX."},
	ReasonBodyTooLarge:         {Label: "body_too_large", Words: "the request body was too large to keep", Explain: "The request body was larger than the retry buffer of a request."},
	ReasonRetryBufferFull:      {Label: "retry_buffer_full", Words: "the retry buffer was full", Explain: "The retry buffer of the process was full."},
	ReasonBodyUnfinished:       {Label: "body_unfinished", Words: "the upload was incomplete", Explain: "The upload was incomplete when the attempt failed, and could not be completed."},
	ReasonResponseTooLarge:     {Label: "response_too_large", Words: "the response was too large to keep", Explain: "The failed response was too large to keep during a retry, so it was relayed."},
	ReasonDraining:             {Label: "draining", Words: "retryproxy was shutting down", Explain: "The proxy was shutting down and began no new retries."},
	ReasonUpstreamGaveUp:       {Label: "upstream_gave_up", Words: "another retryproxy had given up", Explain: "The response came from another retryproxy that had given up already."},
	ReasonLayered:              {Label: "layered", Words: "the request was itself a retry of another proxy", Explain: "The request was itself a retry of another proxy, and RETRYPROXY_LAYERED_RETRIES left it no retries."},
	ReasonNotInRetryOn:         {Label: "not_in_retry_on", Words: "RETRY_ON does not list the failure", Explain: "RETRYPROXY_RETRY_ON does not list this kind of failure, such as a 501."},
	ReasonRateLimitPause:       {Label: "rate_limit_pause", Words: "the rate-limit pause was too long", Explain: "A rate-limit pause (429) was in force for this key, and it was longer than the time left for the request."},
	ReasonRateLimited:          {Label: "rate_limited", Words: "the rate limit had no slot in time", Explain: "The rate limit (RETRYPROXY_RATE_LIMIT) had no slot for a retry within RETRYPROXY_RATE_LIMIT_WAIT."},
	ReasonSwitchedOff:          {Label: "switched_off", Words: "retries are switched off", Explain: "POST /retry-percent of the admin listener has switched off all retries or a share of them."},
	ReasonDryRun:               {Label: "dry_run", Words: "dry run", Explain: "The route makes no retries (RETRYPROXY_DRY_RUN=true); otherwise the request would have been retried."},
	ReasonNoDescriptors:        {Label: "no_descriptors", Words: "no file descriptor was left", Explain: "The process or the machine had no file descriptor for a connection to the upstream for as long as the request could wait. This does not count against the upstream."},
	ReasonAskedNotToRetry:      {Label: "asked_not_to_retry", Words: "the upstream asked for no retry", Explain: "The upstream asked for no retry: X-Should-Retry: false, or a grpc-retry-pushback-ms that is negative or no number."},
	ReasonQuotaExhausted:       {Label: "quota_exhausted", Words: "the quota of the account is used up", Explain: "The error body says that a budget, a spending limit or a prepaid credit is used up (docs/reference/retry-after.md lists the codes). No retry would help."},
	ReasonRequestTooLarge:      {Label: "request_too_large", Words: "the request exceeds a limit of the API", Explain: "The error body says that this request alone exceeds a limit, such as the tokens of a whole minute (docs/reference/retry-after.md lists the texts). No retry would help."},
	ReasonUntrustedCertificate: {Label: "untrusted_certificate", Words: "the certificate is not trusted", Explain: "The certificate of the upstream could not be verified: its CA is unknown, its name is another one, or its time of validity is not now. The log says what to do. This does not open the circuit breaker."},
}

// String returns the metric label, or "invalid" for a value outside the set.
func (r Reason) String() string { return labels.Lookup(reasonTexts[:], int(r)).Label }

// Words returns a phrase for people, in place of the label.
func (r Reason) Words() string { return labels.Lookup(reasonTexts[:], int(r)).Words }

// WordsFor is Words for a request with this method.
func (r Reason) WordsFor(method string) string {
	if r == ReasonNotIdempotent {
		return method + " without an Idempotency-Key"
	}
	return r.Words()
}

// Explain returns one sentence for a reader of metrics or of `explain`.
func (r Reason) Explain() string { return labels.Lookup(reasonTexts[:], int(r)).Explain }

// ForRetry reports whether r is what a retry is for.
func (r Reason) ForRetry() bool { return r > ReasonNone && r < firstWhyNot }

// WhyNot reports whether r is why there is no retry.
func (r Reason) WhyNot() bool { return r >= firstWhyNot && r < numReasons }

// InVain reports whether a retry by the client cannot succeed either, at whatever time it is sent: an
// account is used up, the request is too large, or a certificate is not valid. No other reason says that.
// An upstream that failed for as long as we retried may serve the client's next request, and that has a
// deadline, a budget and a number of retries of its own (see LayeredRetries).
func (r Reason) InVain() bool {
	return r == ReasonQuotaExhausted || r == ReasonRequestTooLarge || r == ReasonUntrustedCertificate
}

// AllReasons lists every reason but ReasonNone: first those for a retry, then those against one.
// The slice belongs to the caller.
func AllReasons() []Reason { return labels.Sequence(ReasonNone+1, numReasons) }
