package metrics

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Route holds the counts of the requests of one route. Each request is counted in the
// [Stripe] that Near returned when it began.
type Route struct {
	name string
	// The length of stripes is a power of two. Each is allocated at first use.
	stripes   []atomic.Pointer[Stripe]
	exemplars atomic.Pointer[exemplars] // nil until the first
	near      sync.Pool                 // of stripes: a core gets the one it used last
	next      atomic.Uint32
}

func newRoute(name string, stripes int) *Route {
	r := &Route{name: name, stripes: make([]atomic.Pointer[Stripe], stripes)}
	r.near.New = func() any { return r.stripe(uint(r.next.Add(1))) }
	return r
}

// Near returns this core's stripe, to be used for a request from its beginning to its end.
// It does not block, and allocates only at first use.
func (r *Route) Near() *Stripe {
	s := r.near.Get().(*Stripe)
	r.near.Put(s)
	return s
}

func (r *Route) stripe(i uint) *Stripe {
	slot := &r.stripes[i&uint(len(r.stripes)-1)]
	if c := slot.Load(); c != nil {
		return c
	}
	slot.CompareAndSwap(nil, &Stripe{exemplars: &r.exemplars})
	return slot.Load()
}

// totals holds the sums over all stripes.
type totals struct {
	Stripe
	inFlight, waiting uint64
}

// totals sums the stripes; nil if the route was never used.
func (r *Route) totals() *totals {
	var t *totals
	for i := range r.stripes {
		if c := r.stripes[i].Load(); c != nil {
			if t == nil {
				t = new(totals)
			}
			t.add(c)
		}
	}
	if t != nil {
		t.inFlight = r.inFlight((*Stripe).done, func(c *Stripe) uint64 { return c.began.Load() })
		t.waiting = r.inFlight(func(c *Stripe) uint64 { return c.backoff.count() }, func(c *Stripe) uint64 { return c.waits.Load() })
	}
	return t
}

// inFlight returns what began less what ended. It reads what ended first, so that never
// more has ended than begun. Requests that begin and end during the read, within a
// microsecond, may count as in flight.
func (r *Route) inFlight(ended, began func(*Stripe) uint64) uint64 {
	sum := func(of func(*Stripe) uint64) (n uint64) {
		for i := range r.stripes {
			if c := r.stripes[i].Load(); c != nil {
				n += of(c)
			}
		}
		return n
	}
	n := sum(ended)
	return sum(began) - n
}

// other is the label of a value outside a closed set.
const other = "other"

// methodLabels lists the methods of RFC 9110 section 9.3 and RFC 5789. The last one is for
// all others, of which a client can invent any number.
var methodLabels = [...]string{"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", other}

const (
	numMethods  = len(methodLabels)
	otherMethod = numMethods - 1
)

// methodIndex returns the index of a method's label. Methods are case-sensitive.
func methodIndex(method []byte) int {
	for i, label := range methodLabels[:otherMethod] { // the most frequent ones are first
		if label == string(method) { // the comparison does not copy the bytes
			return i
		}
	}
	return otherMethod
}

// Codes 100 to 599 are counted separately.
const (
	leastCode = 100
	rowCodes  = 100
	numRows   = 5
)

// codeRow counts the codes of one hundred, e.g. 200 to 299.
type codeRow [rowCodes]atomic.Uint64

// codeTable counts by status code. A row is allocated when one of its codes first occurs.
type codeTable struct {
	rows  [numRows]atomic.Pointer[codeRow]
	other atomic.Uint64 // codes outside 100..599, and no code
}

func (t *codeTable) inc(code int) {
	i := uint(code - leastCode)
	if i >= numRows*rowCodes {
		t.other.Add(1)
		return
	}
	row := t.rows[i/rowCodes].Load()
	if row == nil {
		row = t.makeRow(i / rowCodes)
	}
	row[i%rowCodes].Add(1)
}

func (t *codeTable) makeRow(i uint) *codeRow {
	t.rows[i].CompareAndSwap(nil, new(codeRow))
	return t.rows[i].Load()
}

// add adds the counts of another table.
func (t *codeTable) add(o *codeTable) {
	for i := range o.rows {
		from := o.rows[i].Load()
		if from == nil {
			continue
		}
		row := t.makeRow(uint(i))
		for k := range from {
			row[k].Add(from[k].Load())
		}
	}
	t.other.Add(o.other.Load())
}

// each calls f with the label and the count of every code that has occurred.
func (t *codeTable) each(f func(code string, n uint64)) {
	for i := range t.rows {
		row := t.rows[i].Load()
		if row == nil {
			continue
		}
		for k := range row {
			if n := row[k].Load(); n > 0 {
				f(strconv.Itoa(leastCode+i*rowCodes+k), n)
			}
		}
	}
	if n := t.other.Load(); n > 0 {
		f(other, n)
	}
}

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
