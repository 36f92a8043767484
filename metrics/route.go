package metrics

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"
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
	beginning *beginning // of requests of all routes
}

func newRoute(name string, stripes int, b *beginning) *Route {
	r := &Route{name: name, stripes: make([]atomic.Pointer[Stripe], stripes), beginning: b}
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
	slot.CompareAndSwap(nil, &Stripe{exemplars: &r.exemplars, beginning: r.beginning})
	return slot.Load()
}

// Used reports whether anything was counted yet.
func (r *Route) Used() bool { return r.sum(func(*Stripe) uint64 { return 1 }) > 0 }

// sum adds a count of all stripes.
func (r *Route) sum(of func(*Stripe) uint64) (n uint64) {
	for i := range r.stripes {
		if s := r.stripes[i].Load(); s != nil {
			n += of(s)
		}
	}
	return n
}

// distribution adds a histogram of all stripes. of returns nil if a stripe has none.
func (r *Route) distribution(of func(*Stripe) *histogram) (d distribution) {
	for i := range r.stripes {
		if s := r.stripes[i].Load(); s != nil {
			if h := of(s); h != nil {
				d.add(h)
			}
		}
	}
	return d
}

// InFlight returns the requests that have begun and not ended. It reads what ended first, so that
// never more has ended than begun. Requests that begin and end during the read, within a
// microsecond, may count as in flight. So it is with Waiting.
func (r *Route) InFlight() uint64 {
	ended := r.sum((*Stripe).done)
	return r.sum(func(s *Stripe) uint64 { return s.began.Load() }) - ended
}

// Waiting returns the requests that wait for their next attempt.
func (r *Route) Waiting() uint64 {
	ended := r.sum(func(s *Stripe) uint64 { return s.backoff.count() })
	return r.sum(func(s *Stripe) uint64 { return s.waits.Load() }) - ended
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
		t.rows[i/rowCodes].CompareAndSwap(nil, new(codeRow))
		row = t.rows[i/rowCodes].Load()
	}
	row[i%rowCodes].Add(1)
}

// eachCode calls f with the label and the count of every code that has occurred in a table.
func (r *Route) eachCode(of func(*Stripe) *codeTable, f func(code string, n uint64)) {
	var counts [numRows * rowCodes]uint64
	for i := range r.stripes {
		if s := r.stripes[i].Load(); s != nil {
			of(s).addTo(&counts)
		}
	}
	for i, n := range counts {
		if n > 0 {
			f(strconv.Itoa(leastCode+i), n)
		}
	}
	if n := r.sum(func(s *Stripe) uint64 { return of(s).other.Load() }); n > 0 {
		f(other, n)
	}
}

func (t *codeTable) addTo(counts *[numRows * rowCodes]uint64) {
	for i := range t.rows {
		if row := t.rows[i].Load(); row != nil {
			addLoaded(counts[i*rowCodes:], row[:])
		}
	}
}

// codeClasses labels the hundreds of status codes. The last one is for codes outside 100..599, such
// as 0 for no response.
var codeClasses = [numRows + 1]string{"1xx", "2xx", "3xx", "4xx", "5xx", "none"}

// codeHistograms are histograms of durations (durationLadder) by hundred of the status code, since a
// failure may be much quicker or slower than what works. Each is allocated when a code of it first
// occurs.
type codeHistograms [numRows + 1]atomic.Pointer[histogram]

// observe counts d.
func (c *codeHistograms) observe(code int, d time.Duration) {
	i := codeClass(code)
	one := c[i].Load()
	if one == nil {
		c[i].CompareAndSwap(nil, new(histogram))
		one = c[i].Load()
	}
	one.observe(&durationLadder, int64(d))
}

// codeClass returns the index of the code in codeClasses.
func codeClass(code int) int {
	if i := uint(code-leastCode) / rowCodes; code >= leastCode && i < numRows {
		return int(i)
	}
	return numRows
}
