package policy

// ProbeResult is what a probe by a request of the proxy's own found. Its String
// is the value of the metric label `result`.
type ProbeResult uint8

// The results, a closed set.
const (
	ProbeBack        ProbeResult = iota // a response that shows that the upstream takes requests; see ShowsRecovered
	ProbeFailing                        // another answer
	ProbeUnreachable                    // no connection
	ProbeUnanswered                     // a connection, and no response
	numProbeResults
)

// NumProbeResults is the number of results, for arrays indexed by ProbeResult.
const NumProbeResults = int(numProbeResults)

var probeResultTexts = [numProbeResults]text{
	ProbeBack:        {"back", "The response shows that the upstream takes requests: any status from 200 to 499 but 429."},
	ProbeFailing:     {"failing", "The response says that it does not: 429 or a status from 500 on."},
	ProbeUnreachable: {"unreachable", "No connection could be made."},
	ProbeUnanswered:  {"unanswered", "The connection ended, or a minute passed, before there was a response."},
}

// String is the metric label. A value outside the set gives "invalid".
func (r ProbeResult) String() string { return lookup(probeResultTexts[:], int(r)).label }

// Explain is one sentence for a reader of metrics.
func (r ProbeResult) Explain() string { return lookup(probeResultTexts[:], int(r)).explain }

// AllProbeResults lists the set in order. The slice belongs to the client.
func AllProbeResults() []ProbeResult { return sequence[ProbeResult](0, numProbeResults) }

// ShowsRecovered reports whether a probe's status shows that the upstream takes
// requests again. A 4xx does: somebody read the request, and a path that is
// wrong or guarded must not keep a healthy upstream shut. 429 asks for fewer
// requests, and 5xx is how readiness checks say no.
func ShowsRecovered(status int) bool { return status >= 200 && status < 500 && status != 429 }

// ClassifyProbe is what a probe that ended so found, and what to tell the Guard:
// that every status which is not one of ShowsRecovered is a failure, and that a dial
// which failed for reasons of our own is one too, so that the next probe waits.
func ClassifyProbe(e AttemptEnd) (ProbeResult, AttemptEnd) {
	switch {
	case e.Kind == Responded && ShowsRecovered(e.Status):
		return ProbeBack, e
	case e.Kind == Responded:
		e.Status = 503
		return ProbeFailing, e
	case e.Kind == Reset || e.Kind == TimedOut:
		return ProbeUnanswered, e
	case e.Kind != Refused:
		e.Kind = DialFailed
	}
	return ProbeUnreachable, e
}
