package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/internal/labels"
	"github.com/retryproxy/retryproxy/policy/status"
)

// ProbeResult is the result of a probe sent as a separate request of the proxy. Its String
// is the value of the metric label `result`.
type ProbeResult uint8

// The results, a closed set.
const (
	ProbeBack        ProbeResult = iota // a response that shows that the upstream accepts requests; see status.Healthy
	ProbeFailing                        // another response
	ProbeUnreachable                    // no connection
	ProbeUnanswered                     // a connection, but no response
	numProbeResults
)

// NumProbeResults is the number of results, for arrays indexed by ProbeResult.
const NumProbeResults = int(numProbeResults)

var probeResultTexts = [numProbeResults]labels.Text{
	ProbeBack:        {Label: "back", Explain: "The upstream takes requests: any status from 200 to 499 except 429."},
	ProbeFailing:     {Label: "failing", Explain: "The upstream does not take requests: 429, or a status of 500 and above."},
	ProbeUnreachable: {Label: "unreachable", Explain: "No connection could be made, or its certificate could not be verified."},
	ProbeUnanswered:  {Label: "unanswered", Explain: "The connection ended, or a minute passed, without a response."},
}

// String returns the metric label, or "invalid" for a value outside the set.
func (r ProbeResult) String() string { return labels.Lookup(probeResultTexts[:], int(r)).Label }

// Explain returns one sentence for a reader of metrics.
func (r ProbeResult) Explain() string { return labels.Lookup(probeResultTexts[:], int(r)).Explain }

// AllProbeResults lists the set in order. The slice belongs to the caller.
func AllProbeResults() []ProbeResult { return labels.Sequence[ProbeResult](0, numProbeResults) }

// ClassifyProbe returns the result of a probe that ended with e, and the end to pass to the
// Guard. There, every status that is not healthy is a failure. A dial that
// failed for a reason on our side is one too, so that the next probe waits. Connected means that the
// certificate of the upstream cannot be verified: requests would fail at once, so none has to queue.
func ClassifyProbe(e AttemptEnd) (ProbeResult, AttemptEnd) {
	switch {
	case e.Kind == Responded && status.Healthy(e.Status):
		return ProbeBack, e
	case e.Kind == Responded:
		e.Unhealthy = true
		return ProbeFailing, e
	case e.Kind == Reset || e.Kind == TimedOut:
		return ProbeUnanswered, e
	case e.Kind != Refused && e.Kind != Connected:
		e.Kind = DialFailed
	}
	return ProbeUnreachable, e
}

// Probe takes the permit of a probe that is no attempt: with Options.ActiveProbe, and after
// failed connections, where the caller probes by connecting (Release with Connected,
// Refused, DialFailed or Dropped). After a lost connection it takes the permit of a check, which
// is done by connecting several times in any case; see Permit.Check. It returns false if no such
// probe is due.
func (g *Guard) Probe(now time.Duration) (Permit, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.core
	c.expire(now)
	if c.connections.check == checkDue {
		p := c.takeCheck(now)
		c.publish(now)
		return p, true
	}
	if !c.probesSeparately() || !c.pace.due() {
		return Permit{}, false
	}
	p := c.issue(now, VerdictProbe, Request{})
	return p, true
}

// ProbePending reports whether the probe p is still the one in flight.
func (g *Guard) ProbePending(p Permit) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.core.isProbe(p)
}

// ReplaceProbe discards the probe p early if it is still in flight, because the upstream is
// known to be at another address now. Another probe is due at once. p stays taken, and a
// late response to it still counts.
func (g *Guard) ReplaceProbe(p Permit, now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.core.isProbe(p) {
		return 0
	}
	before := g.core.eventAt
	g.core.pace.discard()
	return g.core.finish(now, before)
}
