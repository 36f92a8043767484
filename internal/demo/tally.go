package demo

import (
	"math"
	"sync"
	"time"
)

// side is one of the two ways that the traffic takes.
type side uint8

const (
	direct  side = iota // to the upstream, without retries
	proxied             // through retryproxy
	numSides
)

func (s side) String() string { return [...]string{"without retries", "with retryproxy"}[s] }

// kind is what a client saw of one request.
type kind uint8

const (
	success kind = iota // 200 and the right body
	status429
	status502
	status503
	broken // the connection ended before the whole response
	other  // any other status or error, or a wrong body
	numKinds
)

func (k kind) String() string {
	return [...]string{"success", "429", "502", "503", "reset", "other"}[k]
}

// Latencies are counted in buckets, each wider by latencyStep than the one
// before, from latencyLeast up: a quantile read from them is at most 5 % too
// high, and 1 us to 60 s fit.
const (
	latencyLeast   = time.Microsecond
	latencyStep    = 1.05
	latencyBuckets = 370
)

// tally counts what the clients of one side saw, in bounded memory. Safe for
// concurrent use.
type tally struct {
	mu     sync.Mutex // guards counts
	counts counts
}

// counts is a copy of a tally.
type counts struct {
	kinds     [numKinds]int
	latencies [latencyBuckets]int
}

func (t *tally) add(k kind, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.kinds[k]++
	t.counts.latencies[latencyBucket(took)]++
}

func (t *tally) read() counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}

func latencyBucket(d time.Duration) int {
	if d <= latencyLeast {
		return 0
	}
	i := math.Ceil(math.Log(float64(d)/float64(latencyLeast)) / math.Log(latencyStep))
	return min(int(i), latencyBuckets-1)
}

// requests that came to an end.
func (c *counts) requests() int {
	n := 0
	for _, k := range c.kinds {
		n += k
	}
	return n
}

// success is the share of requests that succeeded, in [0, 1]; 0 without any.
func (c *counts) success() float64 {
	return float64(c.kinds[success]) / float64(max(1, c.requests()))
}

// quantile is the latency that a share q in (0, 1] of the requests did not
// exceed, 0 without requests: the upper end of the bucket of nearest rank.
func (c *counts) quantile(q float64) time.Duration {
	rank := int(math.Ceil(q * float64(c.requests())))
	if rank == 0 {
		return 0
	}
	for i, n := range c.latencies {
		if rank -= n; rank <= 0 {
			return time.Duration(float64(latencyLeast) * math.Pow(latencyStep, float64(i)))
		}
	}
	return time.Minute
}
