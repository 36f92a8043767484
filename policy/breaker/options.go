package breaker

import (
	"fmt"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/status"
)

// ConcurrencyLimitMode is how a Guard limits the requests in flight.
type ConcurrencyLimitMode uint8

// The modes of a limit, a closed set.
const (
	ConcurrencyLimitAdaptive ConcurrencyLimitMode = iota // no limit until there is evidence of overload; then what the upstream sustains
	ConcurrencyLimitFixed                                // Options.FixedLimit, always; only a probe may exceed it by one, and incomplete requests take at most half
	ConcurrencyLimitOff                                  // no limit; after an outage the breaker still closes step by step
)

// Options configures a Guard. The zero value is the default: breaker and adaptive limit on.
type Options struct {
	NoBreaker        bool                 // the breaker never opens
	ConcurrencyLimit ConcurrencyLimitMode // how the limit is determined
	FixedLimit       int                  // for ConcurrencyLimitFixed: requests in flight, 1 to 1 000 000
	// ActiveProbe means that the caller sends all probes, taken with Guard.Probe. Acquire and
	// Next then never return VerdictProbe: every request waits for the probe.
	ActiveProbe bool
	On          Failures // what is evidence
	// After is how many failures in a row open the breaker, whatever their kind and URL. Then
	// every request waits, and those in the queue pass in its order. 0 = judge by share, usual
	// rate and loss. Silence is judged in any case.
	After   int
	Backoff backoff.Strategy // the waits before probes, except after one that hung; nil = by kind of evidence, see rhythms
	Rand    backoff.Rand     // jitter of the probes; nil = backoff.Shared(). Used under the Guard's lock.
}

const maxFixed = 1_000_000

// Validate returns an error that names the value out of range.
func (o Options) Validate() error {
	if o.ConcurrencyLimit > ConcurrencyLimitOff {
		return fmt.Errorf("limit mode %d is not known", o.ConcurrencyLimit)
	}
	if o.ConcurrencyLimit == ConcurrencyLimitFixed && (o.FixedLimit < 1 || o.FixedLimit > maxFixed) {
		return fmt.Errorf("%d is not within 1 to %d", o.FixedLimit, maxFixed)
	}
	if o.After < 0 {
		return fmt.Errorf("%d failures in a row are not possible", o.After)
	}
	return nil
}

// Failures is the set of what counts as a failure of the upstream. The zero value is the
// default: failed and lost connections, timeouts, and the statuses 502, 503 and 504; and 500
// if nothing else comes. It is comparable.
type Failures struct {
	given    bool
	without  [numEndKinds]bool // ends without a response that count
	statuses [10]uint64        // a bit for each status
}

// NewFailures returns the set of these statuses, each of 100 to 599, and of the attempts without
// a response that ended like one of kinds.
func NewFailures(kinds []EndKind, statuses ...int) Failures {
	f := Failures{given: true}
	for _, k := range kinds {
		f.without[k] = true
	}
	for _, s := range statuses {
		if s >= 0 && s < 640 {
			f.statuses[s/64] |= 1 << (s % 64)
		}
	}
	return f
}

// Has reports whether e is a failure of the upstream.
func (f *Failures) Has(e AttemptEnd) bool {
	switch {
	case e.Kind == Unsent || e.Kind == Connected:
		return false
	case e.Unhealthy:
		return true
	case e.Kind != Responded:
		return !f.given || f.without[e.Kind]
	case !f.given:
		return status.GatewayErrors.Has(e.Status)
	}
	return e.Status >= 0 && e.Status < 640 && f.statuses[e.Status/64]&(1<<(e.Status%64)) != 0
}

// plain reports whether a status is certainly no failure.
func (f *Failures) plain(e AttemptEnd) bool {
	return e.Kind == Responded && e.Status < 500 && (!f.given || !f.Has(e))
}
