package main

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// entry is what the upstream saw of one request. Its client makes it before
// the request is sent.
type entry struct {
	plan   *plan
	opened time.Time
	seen   chan struct{} // closed when the first attempt's head came

	mu       sync.Mutex // guards what follows
	attempts []attempt  // in the order in which their heads came
	end      ending
}

// ending is how a request ended for its client.
type ending struct {
	at    time.Time     // zero: not yet
	took  time.Duration // from the first byte sent
	left  bool          // without waiting for the response
	reply string        // for a violation
}

// lingers is how long a request is remembered after its end. Longer than the
// proxy may take to find out that a client left.
const lingers = 10 * time.Second

// attempt is one request headers that came, and what was done about it.
type attempt struct {
	act    act
	number int  // that the proxy gave it, from 1; the heads of two may come in any order
	whole  bool // the whole response was written, as far as one can know
	early  bool // answered before the request's body had come
}

// snapshot copies what the upstream saw so far.
func (e *entry) snapshot() []attempt {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]attempt(nil), e.attempts...)
}

// note changes attempt n.
func (e *entry) note(n int, change func(*attempt)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.attempts[n])
}

// rejectedBefore reports whether every attempt before n was answered 429: the
// upstream said that it had not begun the work.
func (e *entry) rejectedBefore(n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !slices.ContainsFunc(e.attempts[:n], func(a attempt) bool { return !a.act.has() || a.act.status != 429 })
}

// number notes the number that the proxy gave attempt n. False: another one had it.
func (e *entry) number(n, number int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	had := slices.ContainsFunc(e.attempts, func(a attempt) bool { return a.number == number })
	e.attempts[n].number = number
	return !had
}

// ledger is what clients and upstream share, and where violations go.
// Safe for concurrent use.
type ledger struct {
	rig.Findings
	seed uint64
	late atomic.Uint64 // attempts read by the upstream after the proxy had given up waiting for them

	mu      sync.Mutex // guards what follows
	entries map[uint64]*entry
	ended   []*entry // those of entries that ended, in that order
}

func newLedger(seed uint64) *ledger { return &ledger{seed: seed, entries: make(map[uint64]*entry)} }

// violation notes that something is wrong. kind groups.
func (l *ledger) violation(kind, format string, args ...any) { l.Add(kind+": "+format, args...) }

// open begins a request.
func (l *ledger) open(p *plan) *entry {
	e := &entry{plan: p, opened: time.Now(), seen: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[p.id] = e
	return e
}

// close ends a request: its client has its response, or left. It is forgotten
// when it cannot matter any more.
func (l *ledger) close(e *entry, end ending) {
	end.at = time.Now()
	e.mu.Lock()
	e.end = end
	e.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = append(l.ended, e)
	for end.at.Sub(l.ended[0].end.at) > lingers {
		delete(l.entries, l.ended[0].plan.id)
		l.ended = l.ended[1:]
	}
}

// arrived notes the head of an attempt and returns its number. False: nobody can
// be waiting for it.
func (l *ledger) arrived(id uint64) (*entry, int, bool) {
	l.mu.Lock()
	e := l.entries[id]
	l.mu.Unlock()
	if e == nil {
		l.violation("attempt from nowhere", "request %d was sent to the upstream long after its end, or never was", id)
		return nil, 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.end.excuses() {
		l.violation("attempt after the response", "request %d was sent to the upstream as attempt %d, %v after its client had %s, which took %v",
			id, len(e.attempts), time.Since(e.end.at), e.end.reply, e.end.took)
		return nil, 0, false
	}
	if !e.end.at.IsZero() && !e.end.left {
		l.late.Add(1)
	}
	n := len(e.attempts)
	e.attempts = append(e.attempts, attempt{act: newAct(l.seed, id, n)})
	if n == 0 {
		close(e.seen)
	}
	return e, n, true
}

// excuses reports whether an attempt may come now. After the response it may when
// it was sent before: the proxy gave up waiting for it, which takes at least
// its timeout, and the upstream is only now reading.
func (d ending) excuses() bool { return d.at.IsZero() || d.left || d.took >= attemptTimeout }
