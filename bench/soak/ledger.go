package main

import (
	"fmt"
	"sync"
)

// entry is what the upstream saw of one request. Its caller makes it before
// the request is sent.
type entry struct {
	plan *plan
	seen chan struct{} // closed when the first attempt's head came

	mu       sync.Mutex // guards attempts
	attempts []attempt  // in the order in which their heads came
}

// attempt is one request head that came, and what was done about it.
type attempt struct {
	act   act
	whole bool // the whole answer was written, as far as one can know
	early bool // answered before the request's body had come
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

// ledger is what callers and upstream share, and where violations go.
// Safe for concurrent use.
type ledger struct {
	seed uint64

	mu      sync.Mutex // guards what follows
	entries map[uint64]*entry

	violations []string // the first few
	total      int      // all of them
	kinds      map[string]int
	kindOrder  []string
}

// maxTold bounds the violations of one kind told in full.
const maxTold = 5

func newLedger(seed uint64) *ledger {
	return &ledger{seed: seed, entries: make(map[uint64]*entry), kinds: make(map[string]int)}
}

// violation notes that something is wrong. kind groups; the rest tells.
func (l *ledger) violation(kind, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds[kind] == 0 {
		l.kindOrder = append(l.kindOrder, kind)
	}
	l.total++
	l.kinds[kind]++
	if l.kinds[kind] <= maxTold {
		l.violations = append(l.violations, kind+": "+fmt.Sprintf(format, args...))
	}
}

// report lists what is wrong, each kind with its number.
func (l *ledger) report() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := append([]string(nil), l.violations...)
	for _, kind := range l.kindOrder {
		if n := l.kinds[kind]; n > maxTold {
			out = append(out, fmt.Sprintf("%s: %d in all", kind, n))
		}
	}
	return out
}

func (l *ledger) violationCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// open begins a request.
func (l *ledger) open(p *plan) *entry {
	e := &entry{plan: p, seen: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries[p.id] = e
	return e
}

// close ends a request: its caller has its answer, or left, and only then may
// an attempt still arrive.
func (l *ledger) close(e *entry, left bool) {
	if left {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, e.plan.id)
}

// arrived notes the head of an attempt and gives its number. False: nobody is
// waiting for it.
func (l *ledger) arrived(id uint64) (*entry, int, bool) {
	l.mu.Lock()
	e := l.entries[id]
	l.mu.Unlock()
	if e == nil {
		l.violation("attempt after the answer", "request %d was sent to the upstream when its caller already had an answer, or never was", id)
		return nil, 0, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	n := len(e.attempts)
	e.attempts = append(e.attempts, attempt{act: newAct(l.seed, id, n)})
	if n == 0 {
		close(e.seen)
	}
	return e, n, true
}
