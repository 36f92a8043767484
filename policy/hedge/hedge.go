// Package hedge decides when a second attempt is sent beside one that has no response yet.
package hedge

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// After is how long an attempt waits before a second one, its hedge, is sent: a percentile
// of response times (p95), or a fixed time. The zero value is off. It is comparable.
type After struct {
	Percent  int           // 50 to 99; 0: Fixed
	Fixed    time.Duration // 1 ms to 10 min; 0 with Percent 0: off
	minDelay time.Duration // with Percent: the minimum delay, also used while no latency is known
}

// Limits of an After. A hedge before a millisecond reacts to network and scheduler noise.
// No client waits longer than ten minutes. A percentile below 50 would hedge most requests.
const (
	Least      = time.Millisecond
	maxDelay   = 10 * time.Minute
	minPercent = 50
	maxPercent = 99
)

// SlowAttempt returns the delay after which an attempt counts as slow. Then a second
// attempt to another endpoint may get a response. It does not end the first attempt before
// it has a good response itself. It replaces an attempt timeout.
func SlowAttempt() After { return After{Percent: 99, minDelay: SlowAfter} }

// SlowAfter is the minimum delay of SlowAttempt.
const SlowAfter = 10 * time.Second

// Slow reports whether a is SlowAttempt, which only applies to upstreams with several
// endpoints.
func (a After) Slow() bool { return a.minDelay > 0 }

// Parse parses "off", "p95" (p50 to p99), or a duration from 1ms to 10m.
func Parse(s string) (After, error) {
	if strings.EqualFold(s, "off") {
		return After{}, nil
	}
	if number, isPercent := strings.CutPrefix(s, "p"); isPercent {
		n, err := strconv.ParseUint(number, 10, 8)
		if err != nil || n < minPercent || n > maxPercent {
			return After{}, fmt.Errorf("percentile %s is not within p%d to p%d", s, minPercent, maxPercent)
		}
		return After{Percent: int(n)}, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return After{}, errors.New("neither a percentile nor a duration")
	case d < Least || d > maxDelay:
		return After{}, fmt.Errorf("%s is not within %s to 10m", s, Least)
	}
	return After{Fixed: d}, nil
}

// String returns a in the syntax of Parse; for SlowAttempt, a text that Parse does not
// accept.
func (a After) String() string {
	switch {
	case a.minDelay > 0:
		return "p" + strconv.Itoa(a.Percent) + ", " + a.minDelay.String() + " at least"
	case a.Percent > 0:
		return "p" + strconv.Itoa(a.Percent)
	case a.Fixed > 0:
		return a.Fixed.String()
	}
	return "off"
}

// Off reports whether no hedge is ever sent.
func (a After) Off() bool { return a == After{} }

// Hedge determines when the requests of one route are hedged, from their measured latency.
// All methods are safe for concurrent use; see latency.Latencies for their cost and the
// meaning of now.
type Hedge struct {
	after     After
	latencies *latency.Latencies // nil with a fixed time
}

// New returns a Hedge that knows no latency yet; nil if h is off.
func New(h After) *Hedge {
	switch {
	case h.Off():
		return nil
	case h.Percent == 0:
		return &Hedge{after: h}
	}
	return &Hedge{after: h, latencies: latency.NewLatencies(h.Percent)}
}

// After returns how long an attempt waits for a hedge, from the time its request was sent
// completely. 0 means that the delay is not known yet (never for SlowAttempt), so no hedge
// is sent.
func (h *Hedge) After(now time.Duration) time.Duration {
	if h.latencies == nil {
		return h.after.Fixed
	}
	if d := h.latencies.Estimate(now); d > 0 {
		return max(d, Least, h.after.minDelay)
	}
	return h.after.minDelay
}

// Learn records an attempt that could have been hedged and was no hedge itself. d is the
// time from sending the complete request until its response headers came, or until nobody
// waited for it. Do not pass failing responses: rejections are fast and would distort the
// latency.
func (h *Hedge) Learn(d time.Duration, answered bool) {
	switch {
	case h.latencies == nil:
	case answered:
		h.latencies.ObserveResponse(d)
	default:
		h.latencies.ObserveAbandoned(d)
	}
}
