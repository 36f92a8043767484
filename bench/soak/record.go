package main

import (
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// soak is what clients, upstream and judge share: requests, counts and violations. It is safe for
// concurrent use.
type soak struct {
	rig.Findings
	seed  uint64
	drawn atomic.Uint64 // id of the newest plan

	mu      sync.Mutex // guards what follows
	records map[uint64]*record
	ended   []*record // the records that have ended, in that order
}

// What is counted.
const (
	sent        = "requests sent"
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

// plan returns the next request.
func (s *soak) plan() *plan { return newPlan(s.seed, s.drawn.Add(1)) }

// record is what client and upstream know about a request. The client makes it before it sends the request.
type record struct {
	plan   *plan
	opened time.Time
	seen   chan struct{} // closed when the headers of the first attempt arrive

	mu       sync.Mutex // guards what follows
	attempts []attempt  // in the order of arrival
	end      ending
}

// attempt is an attempt at the upstream.
type attempt struct {
	script script
	number int  // the proxy's number for it, from 1; attempts may arrive in any order
	whole  bool // the whole response was written
	early  bool // the response was written before the request's body had arrived
}

// ending is how a request ended for its client.
type ending struct {
	at    time.Time     // zero: not yet
	took  time.Duration // from the first byte sent
	left  bool          // the client did not wait for the response
	reply string        // describes the response, for violations
}

// excuses reports whether an attempt may arrive now. After the response, it may if the proxy sent it
// before and gave up waiting, which takes at least its timeout.
func (e ending) excuses() bool { return e.at.IsZero() || e.left || e.took >= attemptTimeout }

// snapshot returns a copy of the attempts so far.
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

// rejectedBefore reports whether each attempt before n got a 429. Then the upstream has not begun the work.
func (r *record) rejectedBefore(n int) bool {
	return !slices.ContainsFunc(r.snapshot()[:n], func(a attempt) bool {
		return !a.script.has() || a.script.status != http.StatusTooManyRequests
	})
}

// number records the proxy's number for attempt n. It reports whether no other attempt has that number.
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

// lingers is how long a record is kept after the end of its request. The proxy notices within that time
// that a client has left.
const lingers = 10 * time.Second

// close ends a request: its client has the response, or has left.
func (s *soak) close(r *record, end ending) {
	end.at = time.Now()
	end.left = end.left || r.plan.behavior == cutsUpload
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

// arrived records an attempt and returns its number. known is false if no client can be waiting for it.
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
	r.attempts = append(r.attempts, attempt{script: newScript(s.seed, id, n)})
	if n == 0 {
		close(r.seen)
	}
	return r, n, true
}
