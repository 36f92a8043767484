package advise

import (
	"math"
	"time"
)

// tail is a quantile, and the number of responses needed to estimate it: ten of them lie beyond it.
type tail struct {
	name    string
	share   float64
	answers float64 // needed
	further int     // steps of the ladder to add, since few responses say little about rare ones
}

var tails = []tail{
	{"p99.9", 0.999, 10_000, 0},
	{"p99", 0.99, 1_000, 1},
	{"p95", 0.95, 200, 2},
}

// leastAnswers is the number of responses needed for advice about times.
const leastAnswers = 200

// latency is how long the responses of an upstream took.
type latency struct {
	histogram *Histogram
	fast      float64 // failures, as if they were the fastest
	answers   float64 // good responses
}

// latencyOf removes the failures from the histogram, which does not distinguish them from good
// responses. Attempts that timed out were among the slowest, and quantiles counted from below do
// not reach them. For all others it assumes the worst: that they were the fastest. So they cannot
// make the upstream look faster than it is.
func latencyOf(c *Counts) latency {
	total := c.Attempt.Total()
	failed := max(0, min(total, c.Attempts-c.Good))
	slow := min(failed, c.Retries["attempt_timeout"]+hung(c))
	return latency{histogram: &c.Attempt, fast: failed - slow, answers: total - failed}
}

// hung returns the number of attempts of a route in dry run that exceeded the attempt timeout and
// never got a response.
func hung(c *Counts) float64 {
	return min(c.Would["attempt_timeout"], max(0, c.Silent-c.Would["reset"]-c.Would["malformed"]-c.Would["response_headers_too_large"]))
}

// best returns the rarest tail that the responses can show.
func (l *latency) best() (tail, bool) {
	for _, t := range tails {
		if l.answers >= t.answers {
			return t, true
		}
	}
	return tail{}, false
}

// at returns the upper edge of the bucket in which that share of the responses is reached, plus
// further steps; Forever for the bucket above all edges.
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

// edgeAt returns the edge with that index; beyond the last one, edges double.
func edgeAt(h *Histogram, i int, edge float64) float64 {
	last := len(h.Edges) - 1
	if i <= last {
		return h.Edges[i]
	}
	return max(edge, h.Edges[last]) * math.Pow(2, float64(i-last))
}

// beyond returns the maximum number of values above d: all above the last edge that is not above d.
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
