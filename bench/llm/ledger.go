package main

import (
	"bytes"
	"sync"
	"time"
)

// body is what one side knows of the body of a response.
type body struct {
	text  []byte
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
	mu sync.Mutex // guards all below
	entries
}

// entries are what a ledger holds.
type entries struct {
	jobs     map[int]*record
	sent     map[string]body // by X-Response-Id
	faults   [faults]int     // made on purpose
	requests int
	limited  int // by 429, as a rate limit was used up
	early    int
	futile   int
	tokens   int  // admitted until the end of the load
	ended    bool // the load
}

func newLedger() *ledger {
	return &ledger{entries: entries{jobs: map[int]*record{}, sent: map[string]body{}}}
}

// enter changes the entries.
func (l *ledger) enter(change func(*entries)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.entries)
}

// note changes the record of a job.
func (l *ledger) note(number int, change func(*record)) {
	l.enter(func(e *entries) { change(e.job(number)) })
}

func (e *entries) job(number int) *record {
	if e.jobs[number] == nil {
		e.jobs[number] = &record{}
	}
	return e.jobs[number]
}

// arrive judges a request, and returns which attempt of its job it is; the first is 0.
func (l *ledger) arrive(number int, now time.Time) (attempt int) {
	l.enter(func(e *entries) {
		r := e.job(number)
		e.requests++
		if now.Before(r.notBefore) {
			e.early++
		}
		if r.spent {
			e.futile++
		}
		attempt = r.attempts
		r.attempts++
	})
	return attempt
}

// twice counts the jobs that were billed more than once.
func (e *entries) twice() (n int) {
	for _, r := range e.jobs {
		if r.billed > 1 {
			n++
		}
	}
	return n
}

// changed counts the bodies that a client got otherwise than they were sent. A body that was cut
// off upstream must be cut off for the client; it may be shorter then.
func (e *entries) changed(got map[string]body) (n int) {
	for id, g := range got {
		s, known := e.sent[id]
		as := bytes.HasPrefix(s.text, g.text) && (!g.whole || len(g.text) == len(s.text))
		if !known || g.whole != s.whole || !as {
			n++
		}
	}
	return n
}
