package page

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// The requests that are kept: the last that failed, the last that a retry recovered, and the
// slowest of the window.
const (
	keptFailed    = 24
	keptRecovered = 8
	keptSlow      = 12
	maxPath       = 96 // bytes; the rest is cut off
	maxID         = 64 // likewise; a UUID has 36
	maxMethod     = 12
	maxSteps      = 8
)

// record is a request, cut to a fixed size.
type record struct {
	began    int64 // Unix nanoseconds; 0: empty
	ended    int64 // likewise
	route    string
	took     uint32 // microseconds, like all below
	steps    [maxSteps]step
	code     uint16
	attempts uint16
	outcome  policy.Outcome
	n        uint8 // steps
	method   [maxMethod]byte
	path     [maxPath]byte
	id       [maxID]byte
	failedAt string // endpoint of the last failed attempt; "" if none was chosen
	methodN  uint8
	pathN    uint8
	idN      uint8
	cut      bool // the path is longer
	idCut    bool // the ID is longer
}

type step struct {
	began, took uint32
	status      uint16
	cause       policy.Cause
	class       policy.Class
	dial        *upstream.DialError
}

// failed reports whether the attempt failed. The loser of a hedged request did not.
func (s *step) failed() bool { return s.class != policy.ClassNone && s.class != policy.Overtaken }

// journal keeps records. The request path reads floor and until. It takes the lock only if it is
// free, so it never waits; if the lock is taken, the record is lost.
type journal struct {
	floor atomic.Int64 // a request that took no longer is not among the slowest; nanoseconds
	until atomic.Int64 // when floor must be computed anew; Unix nanoseconds

	mu      sync.Mutex // guards all fields below
	version uint64     // changes when the records change
	kept    *records   // nil until there is a record
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

// keepSlow replaces the fastest of the slow requests still in the window with e.
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

// leastSlow clears the records that ended before the window, and returns the index of the fastest
// one.
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
		attempts: uint16(min(e.Attempts, 1<<16-1)), outcome: e.Outcome, cut: len(e.Path) > maxPath, idCut: len(e.RequestID) > maxID,
	}
	r.methodN, r.pathN, r.idN = uint8(copy(r.method[:], e.Method)), uint8(copy(r.path[:], e.Path)), uint8(copy(r.id[:], e.RequestID))
	for _, s := range e.Steps[:min(len(e.Steps), maxSteps)] {
		r.steps[r.n] = step{micros(s.Began), micros(s.Took), uint16(s.Status), s.Cause, s.Class, s.Dial}
		if r.steps[r.n].failed() {
			r.failedAt = s.Addr
		}
		r.n++
	}
}

// micros converts d to microseconds; longer than 71 minutes becomes 71 minutes.
func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
