package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// codeClasses labels the hundreds of status codes. The last one is for codes outside 100..599, such
// as 0 for no response.
var codeClasses = [numRows + 1]string{"1xx", "2xx", "3xx", "4xx", "5xx", "none"}

const class2xx = 1

// codeHistograms are histograms of durations (durationLadder) by hundred of the status code, since a
// failure may be much quicker or slower than what works. Each is allocated when a code of it first
// occurs.
type codeHistograms [numRows + 1]atomic.Pointer[histogram]

// observe counts d.
func (h *codeHistograms) observe(code int, d time.Duration) {
	h.of(codeClass(code)).observe(durationLadder, d)
}

// codeClass returns the index of the code in codeClasses.
func codeClass(code int) int {
	if i := uint(code-leastCode) / rowCodes; code >= leastCode && i < numRows {
		return int(i)
	}
	return numRows
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

// collect exports those that counted something, with their exemplars, and with zeros at least that
// of good responses.
func (h *codeHistograms) collect(ch chan<- prometheus.Metric, f *family, route string, zeros bool, e *exemplars) {
	for i := range h {
		one := h[i].Load()
		if one == nil && zeros && i == class2xx {
			one = new(histogram)
		}
		if one != nil {
			ch <- e.with(one.metric(f, durationLadder, route, codeClasses[i]), i)
		}
	}
}
