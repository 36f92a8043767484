package main

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// soak is what clients, upstream and judge share: the requests in flight, what is counted of them,
// and the violations. It is safe for concurrent use.
type soak struct {
	rig.Findings
	seed  uint64
	drawn atomic.Uint64 // id of the newest plan

	mu      sync.Mutex // guards what follows
	records map[uint64]*record
	ended   []*record // those of records that ended, in that order
}

// What is counted.
const (
	sent        = "requests sent"
	malformed   = "malformed requests sent"
	attempts    = "attempts at the upstream"
	sentBytes   = "bytes of request bodies"
	readBytes   = "bytes of responses"
	cutRight    = "cut as they should be"
	ownResponse = "responses of the proxy itself"
	neverThere  = "responses of the proxy itself to requests that never reached the upstream"
	lostToReset = "responses lost to the reset that an unread upload brings about"
	stray408    = "unasked 408s that came just as a request went out"
	readLate    = "attempts read after the proxy had given up waiting for them"
)

func newSoak(seed uint64) *soak { return &soak{seed: seed, records: map[uint64]*record{}} }

// violation adds a finding of this kind.
func (s *soak) violation(kind, format string, a ...any) { s.Add(kind+": "+format, a...) }

// plan draws the next request.
func (s *soak) plan() *plan { return newPlan(s.seed, s.drawn.Add(1)) }

// record is what both ends know of one request. Its client makes it before the request is sent.
type record struct {
	plan   *plan
	opened time.Time
	seen   chan struct{} // closed when the first attempt's headers came

	mu       sync.Mutex // guards what follows
	attempts []attempt  // in the order in which their headers came
	end      ending
}

// attempt is one request that came to the upstream, and what was done about it.
type attempt struct {
	act    act
	number int  // that the proxy gave it, from 1; the headers of two may come in any order
	whole  bool // the whole response was written, as far as one can know
	early  bool // it was written before the request's body had come
}

// ending is how a request ended for its client.
type ending struct {
	at    time.Time     // zero: not yet
	took  time.Duration // from the first byte sent
	left  bool          // the client did not wait for the response
	reply string        // for a violation
}

// excuses reports whether an attempt may come now. After the response it may if it was sent before:
// the proxy gave up waiting for it, which takes at least its timeout, and the upstream is only now
// reading.
func (d ending) excuses() bool { return d.at.IsZero() || d.left || d.took >= attemptTimeout }

// snapshot copies what the upstream saw so far.
func (r *record) snapshot() []attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.attempts)
}

// note changes attempt n.
func (r *record) note(n int, change func(*attempt)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.attempts[n])
}

// rejectedBefore reports whether each attempt before n was answered 429: the upstream said that it
// had not begun the work.
func (r *record) rejectedBefore(n int) bool {
	return !slices.ContainsFunc(r.snapshot()[:n], func(a attempt) bool {
		return !a.act.has() || a.act.status != http.StatusTooManyRequests
	})
}

// number notes the number that the proxy gave attempt n, and reports whether no other one had it.
func (r *record) number(n, number int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	had := slices.ContainsFunc(r.attempts, func(a attempt) bool { return a.number == number })
	r.attempts[n].number = number
	return !had
}

// open begins a request.
func (s *soak) open(p *plan) *record {
	r := &record{plan: p, opened: time.Now(), seen: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[p.id] = r
	return r
}

// lingers is how long a request is remembered after its end. It is longer than the proxy may take to
// find out that a client left.
const lingers = 10 * time.Second

// close ends a request: its client has its response, or left, or does not want what it asked for.
func (s *soak) close(r *record, end ending) {
	end.at = time.Now()
	end.left = end.left || r.plan.conduct == cutsUpload
	r.mu.Lock()
	r.end = end
	r.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, r)
	for end.at.Sub(s.ended[0].end.at) > lingers {
		delete(s.records, s.ended[0].plan.id)
		s.ended = s.ended[1:]
	}
}

// arrived notes the headers of an attempt and returns its number. If nobody can be waiting for it,
// known is false.
func (s *soak) arrived(id uint64) (r *record, n int, known bool) {
	s.mu.Lock()
	r = s.records[id]
	s.mu.Unlock()
	if r == nil {
		s.violation("attempt from nowhere", "request %d was sent to the upstream long after its end, or never was", id)
		return nil, 0, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.end.excuses() {
		s.violation("attempt after the response", "request %d was sent to the upstream as attempt %d, %v after its client had %s, which took %v",
			id, len(r.attempts), time.Since(r.end.at), r.end.reply, r.end.took)
		return nil, 0, false
	}
	if !r.end.at.IsZero() && !r.end.left {
		s.Count(readLate, 1)
	}
	n = len(r.attempts)
	r.attempts = append(r.attempts, attempt{act: newAct(s.seed, id, n)})
	if n == 0 {
		close(r.seen)
	}
	return r, n, true
}
