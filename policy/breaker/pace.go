package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/latency"
)

// pace watches how the responses to requests sent during a silence arrive. If the upstream
// only became slower, they arrive at the intervals at which their requests were sent, each
// after the same latency. An upstream that was stopped and continues answers them at once,
// or as fast as it can.
//
// If it is slowness, it becomes the new baseline. Then the queued requests are not admitted
// as slowly as after an outage.
type pace struct {
	on              bool
	from            time.Duration // requests sent since then count
	firstResponseAt time.Duration // when the first of them was answered
	first           time.Duration // when the earliest and the latest answered request were sent
	last            time.Duration
	seen            latency.Sums // their latencies
}

const (
	// paceSpan is the minimum time between the earliest and the latest of these requests. A
	// server that continues may need 100 ms for all it has.
	paceSpan = 400 * time.Millisecond
	// paceShare is the minimum ratio of the time between the responses to that span.
	paceShare = 0.6
	// paceMaxLatency is the largest latency that counts as slowness. A longer one helps few
	// clients and more likely includes an outage.
	paceMaxLatency = 5 * time.Second
)

func (p *pace) begin(from time.Duration) { *p = pace{on: true, from: from} }

// recordResponse records a good response, and reports once whether the upstream has become
// slower.
func (p *pace) recordResponse(sent, now time.Duration) (slower bool) {
	if p.on && p.seen.Total == 0 && sent >= p.from {
		p.firstResponseAt, p.first, p.last = now, sent, sent
	}
	if !p.on || sent < p.from || sent >= p.firstResponseAt {
		return false
	}
	p.seen.Add(now - sent)
	p.first, p.last = min(p.first, sent), max(p.last, sent)
	span := p.last - p.first
	slower = span >= paceSpan && float64(now-p.firstResponseAt) >= paceShare*float64(span) && p.seen.Total >= latency.KnownSamples && now-sent <= paceMaxLatency
	p.on = !slower
	return slower
}

// expire ends the watch if too few responses came to decide.
func (p *pace) expire(now time.Duration) {
	if p.seen.Total > 0 && now-p.firstResponseAt > paceMaxLatency {
		p.on = false
	}
}
