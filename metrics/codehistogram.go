package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// codeClasses labels the hundreds of status codes; the last one is for no response.
var codeClasses = [numRows + 1]string{"1xx", "2xx", "3xx", "4xx", "5xx", "none"}

const class2xx = 1

// codeHistograms are histograms of durations (durationLadder) by hundred of the status code, since a
// failure may be much quicker or slower than what works. Each is allocated when a code of it first
// occurs.
type codeHistograms [numRows + 1]atomic.Pointer[histogram]

// observe counts d. A code outside 100..599, such as 0, is none.
func (h *codeHistograms) observe(code int, d time.Duration) {
	i := uint(code-leastCode) / rowCodes
	if code < leastCode || i >= numRows {
		i = numRows
	}
	h.of(int(i)).observe(durationLadder, d)
}

func (h *codeHistograms) of(i int) *histogram {
	if one := h[i].Load(); one != nil {
		return one
	}
	h[i].CompareAndSwap(nil, new(histogram))
	return h[i].Load()
}

// add adds the counts of o.
func (h *codeHistograms) add(o *codeHistograms) {
	for i := range o {
		if one := o[i].Load(); one != nil {
			h.of(i).add(one)
		}
	}
}

// addTo adds the counts of all to buckets.
func (h *codeHistograms) addTo(buckets []uint64) {
	for i := range h {
		if one := h[i].Load(); one != nil {
			addLoaded(buckets, one.buckets[:])
		}
	}
}

// collect exports those that counted something, and with zeros at least that of good responses.
func (h *codeHistograms) collect(ch chan<- prometheus.Metric, f *family, route string, zeros bool) {
	for i := range h {
		one := h[i].Load()
		if one == nil && zeros && i == class2xx {
			one = new(histogram)
		}
		if one != nil {
			ch <- one.metric(f, durationLadder, route, codeClasses[i])
		}
	}
}
