package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// recoveryLatencies collects the latencies of requests sent since the slow start began. An
// upstream can recover slower than it was, whatever the load: with cold caches, in a new
// version, on a busy machine. It then needs more concurrency for the same goodput than the
// slow start would allow, and delays that were surprising are now normal. Judged by the old
// baseline, it gets one request at a time and its clients are refused until the old
// baseline has decayed.
//
// So if every one of the first responses took four times the usual 90th percentile, the
// baseline is learned anew from them. The slow start then continues as long as more
// concurrency brings more goodput. The first responses are to requests that were sent
// almost alone. Later ones may be slow because of the load of this proxy and others, so
// they do not count.
type recoveryLatencies struct {
	since time.Duration // requests sent earlier may have waited out the outage
	seen  latency.Sums  // of the first latency.KnownSamples responses
	any   bool          // since is set
}

// recoverySlowdown is the minimum ratio of each of the first latencies to the usual 90th
// percentile. Below it, the climb reaches the right limit in a few seconds. With 2, fifty
// proxies that return at once to a small upstream would mistake each other's load for
// slowness.
const recoverySlowdown = 4

// begin starts the watch unless it already runs. It keeps running if the breaker opens
// again during slow start: that is the same outage, or the slowness to be detected.
func (c *recoveryLatencies) begin(now time.Duration) {
	if !c.any {
		c.since, c.any = now, true
	}
}

// recordResponse records a good response during slow start, including the one that started
// it. It reports once whether the upstream recovered slower.
func (c *recoveryLatencies) recordResponse(sent, now time.Duration, slowStart bool, u *latency.Baseline) bool {
	if !c.any || sent < c.since || !slowStart || c.seen.Total >= latency.KnownSamples {
		return false
	}
	c.seen.Add(now - sent)
	return c.seen.Total >= latency.KnownSamples && u.Known() && slower(u, &c.seen, 0, recoverySlowdown)
}
