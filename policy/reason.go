package policy

// Reason says what a retry is for, or why there is none. Its String is the
// value of the metric label `reason` and of the X-Retryproxy-Reason field.
type Reason uint8

// The reasons, a closed set. Those up to ReasonGRPC say what a retry is for;
// those from ReasonNotIdempotent on say why a failure was not retried.
const (
	ReasonNone Reason = iota // nothing to explain: the response is no failure

	ReasonConnectFailure
	ReasonTLSFailure
	ReasonIdleClose
	ReasonRefusedStream
	ReasonReset
	ReasonAttemptTimeout
	ReasonMalformed
	ReasonStatus429
	ReasonStatus500
	ReasonStatus502
	ReasonStatus503
	ReasonStatus504
	ReasonStatusOther
	ReasonHeader
	ReasonGRPC

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
	ReasonClientThrottled
	ReasonRateLimited
	ReasonSwitchedOff
	ReasonDryRun
	ReasonNoDescriptors
	numReasons
)

// firstWhyNot is where the reasons against a retry begin.
const firstWhyNot = ReasonNotIdempotent

// NumReasons is the number of reasons, ReasonNone included, for arrays indexed
// by Reason.
const NumReasons = int(numReasons)

var reasonTexts = [numReasons]text{
	ReasonNone: {"none", "The response was no failure."},

	ReasonConnectFailure: {"connect_failure", "No connection to the upstream could be made."},
	ReasonTLSFailure:     {"tls_failure", "The TLS handshake with the upstream failed."},
	ReasonIdleClose:      {"idle_close", "The upstream had closed a pooled connection before it took a byte of the request."},
	ReasonRefusedStream:  {"refused_stream", "The upstream refused the HTTP/2 stream before processing it."},
	ReasonReset:          {"reset", "The connection ended after the request was sent and before the headers of a response arrived."},
	ReasonAttemptTimeout: {"attempt_timeout", "No response headers arrived within the attempt timeout."},
	ReasonMalformed:      {"malformed", "The upstream sent something that is not a valid response."},
	ReasonStatus429:      {"status_429", "The upstream answered 429 Too Many Requests."},
	ReasonStatus500:      {"status_500", "The upstream answered 500 Internal Server Error."},
	ReasonStatus502:      {"status_502", "The upstream answered 502 Bad Gateway."},
	ReasonStatus503:      {"status_503", "The upstream answered 503 Service Unavailable."},
	ReasonStatus504:      {"status_504", "The upstream answered 504 Gateway Timeout."},
	ReasonStatusOther:    {"status_other", "The upstream answered with another status that RETRYPROXY_RETRY_ON lists."},
	ReasonHeader:         {"header", "The response had a header that RETRYPROXY_RETRY_ON names (retriable-header)."},
	ReasonGRPC:           {"grpc_status", "The gRPC call ended before any message with a status that RETRYPROXY_RETRY_ON lists."},

	ReasonNotIdempotent:     {"not_idempotent", "A retry might do the work twice: the method is not idempotent, there is no Idempotency-Key, and the route does not allow unsafe retries."},
	ReasonRetriesExhausted:  {"retries_exhausted", "The request had used all its retries, or the window for them was over."},
	ReasonRetriesOff:        {"retries_off", "The route allows no retries."},
	ReasonBudgetExhausted:   {"budget_exhausted", "The retry budget of the upstream was empty."},
	ReasonDeadline:          {"deadline", "The wait did not fit into the time left for the request."},
	ReasonRetryAfterTooLong: {"retry_after_too_long", "The upstream asked for a longer wait (Retry-After or an exhausted rate limit) than the request had time left, or than a rate-limit pause may last."},
	ReasonBodyTooLarge:      {"body_too_large", "The request body was larger than what is kept for retries."},
	ReasonRetryBufferFull:   {"retry_buffer_full", "The memory that all requests share for kept bodies was full."},
	ReasonBodyUnfinished:    {"body_unfinished", "The upload was incomplete when the attempt failed, and could not be completed."},
	ReasonResponseTooLarge:  {"response_too_large", "The failed response was too large to keep while a better one is sought, so it was passed on."},
	ReasonDraining:          {"draining", "The proxy was shutting down and began no new retries."},
	ReasonUpstreamGaveUp:    {"upstream_gave_up", "The response came from another retryproxy that had given up already, or from a gRPC server that asked for no retry."},
	ReasonLayered:           {"layered", "The request was itself a retry of another proxy, and RETRYPROXY_LAYERED_RETRIES left it no retries."},
	ReasonNotInRetryOn:      {"not_in_retry_on", "RETRYPROXY_RETRY_ON does not list this kind of failure."},
	ReasonRateLimitPause:    {"rate_limit_pause", "The upstream had asked for a pause (429) by requests with this key, and the request had no time to wait for its end."},
	ReasonClientThrottled:   {"client_throttled", "The upstream rejects nearly all requests, and this one was not sent any more (RETRYPROXY_CLIENT_THROTTLING)."},
	ReasonRateLimited:       {"rate_limited", "The rate limit (RETRYPROXY_RATE_LIMIT) had no slot for a retry within the time that it may wait."},
	ReasonSwitchedOff:       {"switched_off", "Retries are switched off, all or a share of them, by RETRYPROXY_RETRY_PERCENT or retryproxy retry-percent."},
	ReasonDryRun:            {"dry_run", "The route makes no retries (RETRYPROXY_DRY_RUN=true); otherwise the request would have been retried."},
	ReasonNoDescriptors:     {"no_descriptors", "The process or the machine had no file descriptor for a connection to the upstream while the request could wait. This does not count against the upstream."},
}

// String is the metric label. A value outside the set gives "invalid".
func (r Reason) String() string { return lookup(reasonTexts[:], int(r)).label }

// Explain is one sentence for a reader of metrics or of `explain`.
func (r Reason) Explain() string { return lookup(reasonTexts[:], int(r)).explain }

// ForRetry reports whether r says what a retry is for.
func (r Reason) ForRetry() bool { return r > ReasonNone && r < firstWhyNot }

// WhyNot reports whether r says why there is no retry.
func (r Reason) WhyNot() bool { return r >= firstWhyNot && r < numReasons }

// AllReasons lists every reason but ReasonNone, first those for a retry, then
// those against one. The slice belongs to the client.
func AllReasons() []Reason { return sequence(ReasonNone+1, numReasons) }
