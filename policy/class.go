package policy

// Class says how sure we are that the upstream did nothing with an attempt.
// Its String is the value of the metric label `class`.
type Class uint8

// The classes, a closed set.
const (
	ClassNone Class = iota // no failure by retry-on
	NotSent                // no byte of the request was taken: safe to repeat, whatever the method
	Rejected               // the upstream says that it did not do the work (Policy.Rejected): safe to repeat, whatever the method
	Unknown                // it may have been processed: retried when idempotent
	Overtaken              // no failure: it was given up because the other attempt of a hedged request answered
	numClasses
)

// NumClasses is the number of classes, for arrays indexed by Class.
const NumClasses = int(numClasses)

var classTexts = [numClasses]text{
	ClassNone: {"ok", "The attempt brought a response that the retry-on setting does not count as a failure."},
	NotSent:   {"not_sent", "The upstream cannot have seen the request: no connection, or none that took a byte. Safe to repeat whatever the method."},
	Rejected:  {"rejected", "The upstream answered with a status by which it says that it did not do the work (RETRYPROXY_RETRY_REJECTED, 429 by default). Safe to repeat whatever the method."},
	Unknown:   {"unknown", "The upstream may have done the work: reset or timeout after bytes were sent, a malformed response, or another listed status. Repeated when the method is idempotent or there is a key."},
	Overtaken: {"overtaken", "No failure: the attempt was given up because the other one of a hedged request (RETRYPROXY_HEDGE_AFTER) answered first."},
}

// String is the metric label. A value outside the set gives "invalid".
func (c Class) String() string { return lookup(classTexts[:], int(c)).label }

// Explain is one sentence for a reader of metrics.
func (c Class) Explain() string { return lookup(classTexts[:], int(c)).explain }

// Exposes reports whether the upstream may have done the work of an attempt of
// this class, so that only a request which may run twice can be sent elsewhere.
func (c Class) Exposes() bool { return c != NotSent && c != Rejected }

// AllClasses lists the set in order. The slice belongs to the client.
func AllClasses() []Class { return sequence[Class](0, numClasses) }

// Cause is what ended an attempt: a response, or what kept it from coming.
type Cause uint8

// The causes, a closed set.
const (
	CauseStatus         Cause = iota // a whole response header section came; see Attempt.Status
	CauseDial                        // no connection: refused, unreachable, unresolved, dial timeout
	CauseTLS                         // the handshake failed, so no request byte was sent
	CauseIdleClose                   // a pooled connection was found closed, or took 0 bytes of the request
	CauseRefusedStream               // HTTP/2 REFUSED_STREAM (RFC 9113 section 8.7): surely not processed
	CauseReset                       // the connection ended after request bytes were taken, before a response header section
	CauseAttemptTimeout              // no response header section within the attempt timeout
	CauseMalformed                   // what came is no valid response header section
	numCauses
)

// NumCauses is the number of causes, for arrays indexed by Cause.
const NumCauses = int(numCauses)

var causeTexts = [numCauses]text{
	CauseStatus:         {"status", "The upstream answered."},
	CauseDial:           {"dial", "No connection to the upstream could be made."},
	CauseTLS:            {"tls", "The TLS handshake with the upstream failed."},
	CauseIdleClose:      {"idle_close", "The upstream had closed the kept-alive connection before it took a byte of the request."},
	CauseRefusedStream:  {"refused_stream", "The upstream refused the HTTP/2 stream before processing it."},
	CauseReset:          {"reset", "The connection ended after the request was sent and before a response headers came."},
	CauseAttemptTimeout: {"attempt_timeout", "No response headers came within the attempt timeout."},
	CauseMalformed:      {"malformed", "The upstream sent something that is not a valid response."},
}

// String is a short name for logs. A value outside the set gives "invalid".
func (c Cause) String() string { return lookup(causeTexts[:], int(c)).label }

// Explain is one sentence for a reader of logs.
func (c Cause) Explain() string { return lookup(causeTexts[:], int(c)).explain }

// AllCauses lists the set in order. The slice belongs to the client.
func AllCauses() []Cause { return sequence[Cause](0, numCauses) }

// Sure reports whether the upstream surely did not get the request, so that
// even an unsafe method may be sent again.
func (c Cause) Sure() bool {
	switch c {
	case CauseDial, CauseTLS, CauseIdleClose, CauseRefusedStream:
		return true
	}
	return false
}

// text is the label and the sentence of one member of a closed set.
type text struct{ label, explain string }

// lookup finds a member's texts; whatever is outside the set is "invalid".
func lookup(texts []text, i int) text {
	if i < 0 || i >= len(texts) {
		return text{"invalid", "Not a member of the set."}
	}
	return texts[i]
}

// sequence lists first, first+1, ... up to but without end.
func sequence[T ~uint8](first, end T) []T {
	all := make([]T, 0, end-first)
	for v := first; v < end; v++ {
		all = append(all, v)
	}
	return all
}
