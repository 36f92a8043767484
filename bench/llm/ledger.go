package main

import (
	"crypto/sha256"
	"sync"
	"time"
)

// sum is the sha256 of a body.
type sum [sha256.Size]byte

// body is what one side knows of the body of a response.
type body struct {
	sum   sum
	bytes int
	whole bool // false: it was cut off
}

// record is what the provider knows of a job.
type record struct {
	attempts  int
	billed    int       // generations that completed
	notBefore time.Time // when the next attempt may come
	spent     bool      // it was told not to come again
	lost      bool      // a response was cut off before its first content, or it was no stream
	cut       bool      // a response was cut off
}

// ledger is where the provider writes down what it saw and sent. It is safe for concurrent use.
type ledger struct {
	mu       sync.Mutex // guards all below
	jobs     map[int]*record
	sent     map[string]body // by X-Response-Id
	faults   [faults]int     // made on purpose
	requests int
	rejected int // by 429, for whatever reason
	limited  int // by 429, as a rate limit was used up
	early    int
	futile   int
	tokens   int // admitted until the end of the load
	ended    bool
}

func newLedger() *ledger { return &ledger{jobs: map[int]*record{}, sent: map[string]body{}} }

// arrive judges a request, and returns which attempt of its job it is; the first is 0.
func (l *ledger) arrive(number int, now time.Time) (attempt int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.job(number)
	l.requests++
	if now.Before(r.notBefore) {
		l.early++
	}
	if r.spent {
		l.futile++
	}
	r.attempts++
	return r.attempts - 1
}

// job returns the record of a job. Hold mu.
func (l *ledger) job(number int) *record {
	r := l.jobs[number]
	if r == nil {
		r = &record{}
		l.jobs[number] = r
	}
	return r
}

// note changes the record of a job.
func (l *ledger) note(number int, change func(*record)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l.job(number))
}

// made counts a fault.
func (l *ledger) made(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults[f]++
}

// responded keeps the body that was sent.
func (l *ledger) responded(id string, status int, b body) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[id] = b
	if status == 429 {
		l.rejected++
	}
}

// overLimit counts a request that a rate limit rejected.
func (l *ledger) overLimit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limited++
}

// admit counts tokens that the rate limit let through.
func (l *ledger) admit(tokens int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.tokens += tokens
	}
}

// endLoad ends the time in which tokens count.
func (l *ledger) endLoad() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// twice counts the jobs that were billed more than once.
func (l *ledger) twice() (n int) {
	for _, r := range l.jobs {
		if r.billed > 1 {
			n++
		}
	}
	return n
}

// changed counts the bodies that a client got otherwise than they were sent. A body that was cut
// off upstream must be cut off for the client; it may be shorter then.
func (l *ledger) changed(got map[string]body) (n int) {
	for id, g := range got {
		s, known := l.sent[id]
		switch {
		case !known, g.whole != s.whole, g.bytes > s.bytes:
			n++
		case (g.whole || g.bytes == s.bytes) && g.sum != s.sum:
			n++
		}
	}
	return n
}
