package page

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The requests kept: the last that failed, the last that a retry recovered, and
// the slowest of the window.
const (
	keptFailed    = 24
	keptRecovered = 8
	keptSlow      = 12
	maxPath       = 96 // bytes; the rest is cut off
	maxMethod     = 12
	maxSteps      = 8
)

// record is a request cut to a fixed size.
type record struct {
	began    int64 // Unix nanoseconds; 0: nothing is here
	ended    int64 // likewise
	route    string
	took     uint32 // microseconds, as are all below
	steps    [maxSteps]step
	code     uint16
	attempts uint16
	outcome  policy.Outcome
	n        uint8 // steps
	method   [maxMethod]byte
	path     [maxPath]byte
	methodN  uint8
	pathN    uint8
	cut      bool // the path goes on
}

type step struct {
	began, took uint32
	status      uint16
	cause       policy.Cause
	class       policy.Class
	dial        *upstream.DialError
}

// journal keeps records. The request path reads floor and until and takes the
// lock only when nobody has it, so it never waits; a record that finds the lock
// taken is lost.
type journal struct {
	floor atomic.Int64 // a request that took no longer is not among the slowest, nanoseconds
	until atomic.Int64 // when floor has to be found anew, Unix nanoseconds

	mu      sync.Mutex // guards all below
	version uint64     // changes with the records
	kept    *records   // nil until there is one
}

type records struct {
	failed              [keptFailed]record
	recovered           [keptRecovered]record
	slow                [keptSlow]record
	nextFailed, nextRes int
}

func (j *journal) wants(endedUnixNano int64, took time.Duration, o policy.Outcome) bool {
	k := kindOf(o)
	if k == failed || k == recovered || o == policy.OutcomeClientGone {
		return true
	}
	return o != policy.OutcomeRefused && (int64(took) > j.floor.Load() || endedUnixNano > j.until.Load())
}

func (j *journal) keep(e *proxy.Ended) {
	if !j.mu.TryLock() {
		return
	}
	defer j.mu.Unlock()
	if j.kept == nil {
		j.kept = &records{}
	}
	j.version++
	k := j.kept
	switch kind := kindOf(e.Outcome); {
	case kind == failed || e.Outcome == policy.OutcomeClientGone:
		k.failed[k.nextFailed%keptFailed].fill(e)
		k.nextFailed++
	case kind == recovered:
		k.recovered[k.nextRes%keptRecovered].fill(e)
		k.nextRes++
	}
	j.keepSlow(e)
}

// keepSlow puts e in place of the least slow one that is left of the window.
func (j *journal) keepSlow(e *proxy.Ended) {
	now := e.Began.Add(e.Took)
	slow := j.kept.slow[:]
	least := leastSlow(slow, now)
	if slow[least].took == 0 || micros(e.Took) > slow[least].took {
		slow[least].fill(e)
	}
	floor, until := int64(slow[leastSlow(slow, now)].took)*1000, now.Add(Window).UnixNano()
	for i := range slow {
		if slow[i].began != 0 {
			until = min(until, slow[i].ended+int64(Window))
		} else {
			floor = 0
		}
	}
	j.floor.Store(floor)
	j.until.Store(until)
}

// leastSlow empties what ended before the window and finds the place of the
// shortest one.
func leastSlow(slow []record, now time.Time) int {
	least := 0
	for i := range slow {
		if slow[i].ended < now.Add(-Window).UnixNano() {
			slow[i] = record{}
		}
		if slow[i].took < slow[least].took {
			least = i
		}
	}
	return least
}

func (r *record) fill(e *proxy.Ended) {
	*r = record{
		began: e.Began.UnixNano(), ended: e.Began.Add(e.Took).UnixNano(), route: e.Route, took: max(micros(e.Took), 1), code: uint16(e.Code),
		attempts: uint16(min(e.Attempts, 1<<16-1)), outcome: e.Outcome, cut: len(e.Path) > maxPath,
	}
	r.methodN, r.pathN = uint8(copy(r.method[:], e.Method)), uint8(copy(r.path[:], e.Path))
	for _, s := range e.Steps[:min(len(e.Steps), maxSteps)] {
		r.steps[r.n] = step{micros(s.Began), micros(s.Took), uint16(s.Status), s.Cause, s.Class, s.Dial}
		r.n++
	}
}

// micros fits 71 minutes; longer is shown as that.
func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}

// Requests are those that are kept, each list as it is to be shown: the last
// that failed and were recovered first, the slowest first.
type Requests struct {
	Failed    []Request `json:"failed"`
	Recovered []Request `json:"recovered"`
	Slow      []Request `json:"slow"`
}

// Request is a finished request. Times are in microseconds.
type Request struct {
	BeganMS  int64     `json:"began_ms"` // since 1970
	Route    string    `json:"route"`
	Method   string    `json:"method"`
	Path     string    `json:"path"` // without the query
	Code     int       `json:"code"` // 0: the client got nothing
	Outcome  string    `json:"outcome"`
	Why      string    `json:"why"` // the outcome in a sentence
	Took     uint32    `json:"took"`
	Count    int       `json:"count"` // of attempts
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one of a request's attempts. Times are in microseconds.
type Attempt struct {
	Began  uint32 `json:"began"` // since the request did
	Took   uint32 `json:"took"`
	Result string `json:"result"` // a status or what went wrong
	Class  string `json:"class"`  // of the failure; ok for none
	// Of an attempt that found no connection, else "".
	Address string `json:"address,omitempty"`
	Error   string `json:"error,omitempty"` // one line, bounded; some of it may be the upstream's
}

// read copies what is kept. Requests that end meanwhile are not.
func (j *journal) read(now time.Time) (Requests, uint64) {
	out := Requests{Failed: []Request{}, Recovered: []Request{}, Slow: []Request{}}
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.kept
	if k == nil {
		return out, j.version
	}
	out.Failed = lastFirst(k.failed[:], k.nextFailed)
	out.Recovered = lastFirst(k.recovered[:], k.nextRes)
	leastSlow(k.slow[:], now) // for what it empties
	out.Slow = lastFirst(k.slow[:], 0)
	slices.SortStableFunc(out.Slow, func(a, b Request) int { return int(int64(b.Took) - int64(a.Took)) })
	return out, j.version
}

func (j *journal) changes() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.version
}

func lastFirst(ring []record, next int) []Request {
	out := []Request{}
	for i := range ring {
		if r := &ring[((next-1-i)%len(ring)+len(ring))%len(ring)]; r.began != 0 {
			out = append(out, r.request())
		}
	}
	return out
}

func (r *record) request() Request {
	path := strings.ToValidUTF8(string(r.path[:r.pathN]), "\uFFFD")
	if r.cut {
		path += "…"
	}
	out := Request{
		BeganMS: r.began / 1e6, Route: r.route, Method: strings.ToValidUTF8(string(r.method[:r.methodN]), "\uFFFD"), Path: path,
		Code: int(r.code), Outcome: r.outcome.String(), Why: r.outcome.Explain(), Took: r.took, Count: int(r.attempts), Attempts: []Attempt{},
	}
	for _, s := range r.steps[:r.n] {
		out.Attempts = append(out.Attempts, s.attempt())
	}
	return out
}

func (s *step) attempt() Attempt {
	result := s.cause.String()
	if s.status > 0 {
		result = strconv.Itoa(int(s.status))
	}
	a := Attempt{Began: s.began, Took: s.took, Result: result, Class: s.class.String()}
	if s.dial != nil {
		a.Address, a.Error = s.dial.Addr, s.dial.Text()
		if kind := s.dial.Kind.String(); kind != a.Result {
			a.Result += "_" + kind
		}
	}
	return a
}
