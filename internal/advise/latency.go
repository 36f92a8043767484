package advise

import (
	"math"
	"time"
)

// tail is a quantile that so many answers can tell: ten of them lie beyond it.
type tail struct {
	name    string
	share   float64
	answers float64 // needed
	further int     // steps of the ladder added, since fewer answers say less about what is rare
}

var tails = []tail{
	{"p99.9", 0.999, 10_000, 0},
	{"p99", 0.99, 1_000, 1},
	{"p95", 0.95, 200, 2},
}

// LeastAnswers are needed before anything is said about times.
const LeastAnswers = 200

// latency is what the responses of an upstream took.
type latency struct {
	histogram *Histogram
	fast      float64 // failures, as if they had been the fastest of all
	answers   float64 // good ones
}

// latencyOf leaves the failures out of the histogram, which does not tell them
// from answers. Attempts that ran into their timeout were surely among the
// slowest, and what is counted from below never gets to them. Of all others the
// worst is taken: that they were the fastest, so that they can make nothing
// look faster than it is.
func latencyOf(c *Counts) latency {
	total := c.Attempt.Total()
	failed := max(0, min(total, c.Attempts-c.Good))
	slow := min(failed, c.Retries["attempt_timeout"]+hung(c))
	return latency{histogram: &c.Attempt, fast: failed - slow, answers: total - failed}
}

// hung are the attempts of a route in dry run which passed the attempt
// timeout and never brought a response.
func hung(c *Counts) float64 {
	return min(c.Would["attempt_timeout"], max(0, c.Silent-c.Would["reset"]-c.Would["malformed"]))
}

// best is the rarest tail that the responses can tell.
func (l *latency) best() (tail, bool) {
	for _, t := range tails {
		if l.answers >= t.answers {
			return t, true
		}
	}
	return tail{}, false
}

// at is the upper edge of the bucket with that share of the responses, and
// further steps up. Forever for the bucket above all.
func (l *latency) at(share float64, further int) time.Duration {
	h := l.histogram
	want := l.fast + math.Ceil(share*l.answers-1e-9)
	below := 0.0
	for i, edge := range h.Edges {
		if below += h.Counts[i]; below >= want {
			return seconds(edgeAt(h, i+further, edge))
		}
	}
	return forever
}

// edgeAt is the edge of that number; above the last one it goes on by doubling.
func edgeAt(h *Histogram, i int, edge float64) float64 {
	last := len(h.Edges) - 1
	if i <= last {
		return h.Edges[i]
	}
	return max(edge, h.Edges[last]) * math.Pow(2, float64(i-last))
}

// beyond is the most that can be said to lie above d: all above the last edge
// that is not above d.
func (h *Histogram) beyond(d time.Duration) float64 {
	total := h.Total()
	if total == 0 {
		return 0
	}
	below := 0.0
	for i, edge := range h.Edges {
		if seconds(edge) > d {
			break
		}
		below += h.Counts[i]
	}
	return (total - below) / total
}

const forever = time.Duration(math.MaxInt64)

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
