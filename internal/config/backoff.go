package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Backoff is a backoff strategy with its options.
type Backoff struct {
	name    string
	options backoff.Options // zero: the strategy's own
	text    string
}

func parseBackoff(s string) (Backoff, error) {
	spec, err := strategy.ParseSpec(s)
	if err != nil {
		return Backoff{}, err
	}
	if _, known := backoff.Describe(spec.Name); !known {
		return Backoff{}, fmt.Errorf("%q is not the name of a strategy", spec.Name)
	}
	o, err := spec.Values()
	if err != nil {
		return Backoff{}, err
	}
	_, err = backoff.New(spec.Name, o)
	return Backoff{spec.Name, o, s}, err
}

// Name returns the name of the strategy.
func (b Backoff) Name() string { return b.name }

// String is the inverse of parseBackoff.
func (b Backoff) String() string { return b.text }

// BreakerBackoff is the time between the probes of a circuit breaker: a strategy, or auto.
type BreakerBackoff struct {
	strategy backoff.Strategy // nil: auto
	text     string
}

func parseBreakerBackoff(s string) (BreakerBackoff, error) {
	if strings.EqualFold(s, autoWord) {
		return BreakerBackoff{text: autoWord}, nil
	}
	b, err := parseBackoff(s)
	if err != nil {
		return BreakerBackoff{}, err
	}
	if b.name == "none" && b.options.Extra == 0 {
		return BreakerBackoff{}, errors.New("none would send probes without a pause")
	}
	made, err := backoff.New(b.name, b.options)
	return BreakerBackoff{made, s}, err
}

// String is the inverse of parseBreakerBackoff.
func (b BreakerBackoff) String() string { return b.text }

// fillBackoff sets the first and the longest wait, so that they appear in the effective settings: from
// the options of BACKOFF unless a nearer BACKOFF_BASE or BACKOFF_MAX is set, or else from the
// strategy's defaults. What the strategy does not use stays 0.
func (r *Route) fillBackoff() {
	info, known := backoff.Describe(r.Backoff.name)
	if !known {
		return
	}
	o, d, at := r.Backoff.options, info.Defaults, r.distance("BACKOFF")
	if o.Base > 0 && at < r.distance("BACKOFF_BASE") {
		r.BackoffBase = o.Base
	}
	if o.Max > 0 && at < r.distance("BACKOFF_MAX") {
		r.BackoffMax = o.Max
	}
	if r.BackoffBase == 0 {
		r.BackoffBase = atMost(d.Base, r.BackoffMax)
	}
	if r.BackoffMax == 0 && d.Max != 0 {
		r.BackoffMax = max(d.Max, r.BackoffBase)
	}
}

// backoffOptions returns the options for backoff.New.
func (r *Route) backoffOptions() backoff.Options {
	o := r.Backoff.options
	o.Base, o.Max = cmp.Or(r.BackoffBase, o.Base), cmp.Or(r.BackoffMax, o.Max)
	return o
}

// distance returns where a variable sets the key: 0 for the route itself, 1 for all routes, and more
// if the default applies.
func (r *Route) distance(key string) int {
	n := 0
	for at := r; at != nil; at = at.parent {
		if name, set := at.own[key]; set && name != "" {
			return n
		}
		n++
	}
	return n + 1
}
