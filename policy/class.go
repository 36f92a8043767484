package policy

import "github.com/retryproxy/retryproxy/policy/internal/labels"

// Class is how certain it is that the upstream did nothing with an attempt. Its String is
// the value of the metric label `class`.
type Class uint8

// The classes, a closed set.
const (
	ClassNone Class = iota // the attempt is no failure under retry-on
	NotSent                // the upstream received no byte of the request: safe to retry for every method
	Rejected               // the upstream's status means that it did not do the work (Policy.Rejected): safe to retry for every method
	Unknown                // the upstream may have processed the request: retried if idempotent
	Overtaken              // no failure: the other attempt of a hedged request answered first
	numClasses
)

// NumClasses is the number of classes, for arrays indexed by Class.
const NumClasses = int(numClasses)

var classTexts = [numClasses]labels.Text{
	ClassNone: {Label: "ok", Explain: "The attempt brought a response below 500 that the retry-on setting does not count as a failure."},
	NotSent:   {Label: "not_sent", Explain: "The upstream cannot have seen the request, because there was no connection or it took no byte. A retry is safe for every method."},
	Rejected:  {Label: "rejected", Explain: "The status means that the upstream did not do the work (RETRYPROXY_RETRY_REJECTED, 429 by default). A retry is safe for every method."},
	Unknown:   {Label: "unknown", Explain: "The upstream may have done the work: reset or timeout after bytes were sent, a malformed response, or a status that is an error. If RETRYPROXY_RETRY_ON lists the failure, there is a retry if the method is idempotent or the request has an Idempotency-Key."},
	Overtaken: {Label: "overtaken", Explain: "Not a failure: the other attempt of a hedged request (RETRYPROXY_HEDGE_AFTER) got its response first, and this attempt was abandoned."},
}

// String returns the metric label, or "invalid" for a value outside the set.
func (c Class) String() string { return labels.Lookup(classTexts[:], int(c)).Label }

// Explain returns one sentence for a reader of metrics.
func (c Class) Explain() string { return labels.Lookup(classTexts[:], int(c)).Explain }

// Exposes reports whether the upstream may have done the work of an attempt of this class.
// If so, only a request that may run twice can be sent elsewhere.
func (c Class) Exposes() bool { return c != NotSent && c != Rejected }

// AllClasses lists the set in order. The slice belongs to the caller.
func AllClasses() []Class { return labels.Sequence[Class](0, numClasses) }

// Cause is what ended an attempt: a response, or what prevented one.
type Cause uint8

// The causes, a closed set.
const (
	CauseStatus          Cause = iota // a complete response header section arrived; see Attempt.Status
	CauseDial                         // no connection: refused, unreachable, unresolved, dial timeout
	CauseTLS                          // the handshake failed, so no request byte was sent
	CauseUntrusted                    // the certificate of the upstream could not be verified, so no request byte was sent
	CauseIdleClose                    // a pooled connection ended without the request being processed: it was already closed, took 0 bytes of it, or ended by 408 or GOAWAY
	CauseRefusedStream                // HTTP/2 REFUSED_STREAM (RFC 9113 section 8.7), or a GOAWAY on a new connection: certainly not processed
	CauseReset                        // the connection was lost after request bytes were taken, before a response header section or its first message or event
	CauseAttemptTimeout               // no response header section within the attempt timeout
	CauseMalformed                    // the bytes received are not a valid response header section
	CauseHeadersTooLarge              // the response header section is larger than the limit, or has more headers
	numCauses
)

// NumCauses is the number of causes, for arrays indexed by Cause.
const NumCauses = int(numCauses)

var causeTexts = [numCauses]labels.Text{
	CauseStatus:          {Label: "status", Explain: "The upstream answered."},
	CauseDial:            {Label: "dial", Explain: "No connection to the upstream could be made, or the connection took no byte of the request."},
	CauseTLS:             {Label: "tls", Explain: "The TLS handshake with the upstream failed."},
	CauseUntrusted:       {Label: "untrusted_certificate", Explain: "The certificate of the upstream could not be verified."},
	CauseIdleClose:       {Label: "idle_close", Explain: "The upstream closed the pooled connection without processing the request."},
	CauseRefusedStream:   {Label: "refused_stream", Explain: "The upstream refused the HTTP/2 stream before processing it."},
	CauseReset:           {Label: "reset", Explain: "The connection to the upstream was lost after the request was sent and before the response began."},
	CauseAttemptTimeout:  {Label: "attempt_timeout", Explain: "No response headers came within the attempt timeout."},
	CauseMalformed:       {Label: "malformed", Explain: "The upstream sent something that is not a valid response."},
	CauseHeadersTooLarge: {Label: "response_headers_too_large", Explain: "The headers of the response were larger than the limit."},
}

// String returns a short name for logs, or "invalid" for a value outside the set.
func (c Cause) String() string { return labels.Lookup(causeTexts[:], int(c)).Label }

// Explain returns one sentence for a reader of logs.
func (c Cause) Explain() string { return labels.Lookup(causeTexts[:], int(c)).Explain }

// unprocessed reports whether the upstream certainly did not process the request, and accepts
// connections.
func (c Cause) unprocessed() bool { return c == CauseIdleClose || c == CauseRefusedStream }

// Sure reports whether the upstream certainly did not get the request. If so, even an
// unsafe method may be sent again.
func (c Cause) Sure() bool {
	switch c {
	case CauseDial, CauseTLS, CauseUntrusted, CauseIdleClose, CauseRefusedStream:
		return true
	}
	return false
}
