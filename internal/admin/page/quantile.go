package page

import (
	"time"

	"github.com/retryproxy/retryproxy/metrics"
)

// buckets count durations, as metrics.Counts does.
type buckets [metrics.NumBuckets]uint32

var edges = metrics.DurationEdges()

// total returns how many durations were counted.
func (b *buckets) total() (sum uint32) {
	for _, n := range b {
		sum += n
	}
	return sum
}

// quantile estimates the q-quantile, 0 < q <= 1, in microseconds, as Prometheus does. It assumes
// that values are evenly distributed within a bucket, and uses the last edge for values above it.
// It returns 0 if nothing was counted.
func (b *buckets) quantile(q float64) uint32 {
	total := b.total()
	if total == 0 {
		return 0
	}
	rank, below := q*float64(total), float64(0)
	for i, n := range b[:len(edges)] {
		if n == 0 || below+float64(n) < rank {
			below += float64(n)
			continue
		}
		low := time.Duration(0)
		if i > 0 {
			low = edges[i-1]
		}
		return max(1, micros(low+time.Duration(float64(edges[i]-low)*(rank-below)/float64(n))))
	}
	return micros(edges[len(edges)-1])
}
