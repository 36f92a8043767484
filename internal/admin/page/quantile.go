package page

import (
	"time"

	"github.com/retryproxy/retryproxy/metrics"
)

var edges = metrics.DurationEdges()

func sum(counts []uint32) (all uint32) {
	for _, n := range counts {
		all += n
	}
	return all
}

// quantile estimates the q-quantile of durations, 0 < q <= 1, in microseconds, as Prometheus does. It assumes
// that values are evenly distributed within a bucket, and uses the last edge for values above it.
// It returns 0 if nothing was counted.
func quantile(b *[metrics.NumBuckets]uint32, q float64) uint32 {
	total := sum(b[:])
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
