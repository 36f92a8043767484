package page

import (
	"math"

	"github.com/retryproxy/retryproxy/metrics"
)

var edges = metrics.DurationEdges()

func sum(counts []uint32) (all uint32) {
	for _, n := range counts {
		all += n
	}
	return all
}

// quantile returns the upper edge of the bucket of the q-quantile of durations, 0 < q <= 1, in microseconds:
// the quantile is not higher. It returns 0 if nothing was counted, and the highest value if the quantile is
// above all edges.
func quantile(b *[metrics.NumBuckets]uint32, q float64) uint32 {
	total := sum(b[:])
	if total == 0 {
		return 0
	}
	rank, upTo := q*float64(total), float64(0)
	for i, n := range b[:len(edges)] {
		if upTo += float64(n); n > 0 && upTo >= rank {
			return micros(edges[i])
		}
	}
	return math.MaxUint32
}
