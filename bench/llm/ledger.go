package main

import (
	"bytes"
	"math"
	"math/rand/v2"
	"sync"
	"time"
)

// body is the body of a response as one side saw it.
type body struct {
	text  []byte
	whole bool // false: it was cut off
}

// record is what the provider knows about a job.
type record struct {
	attempts  int
	billed    int       // generations that completed
	notBefore time.Time // when the next attempt may come
	spent     bool      // it was told not to come again
	lost      bool      // a response was cut off before its first content, or it was no stream
	cut       bool      // a response was cut off
}

// ledger records what the provider saw and sent. It is safe for concurrent use.
type ledger struct {
	mu sync.Mutex // guards all below
	entries
}

// entries are the contents of a ledger.
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

// changed counts the bodies that differ for the client from what was sent. A body that was cut off upstream
// must be cut off for the client, too; it may be shorter.
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

// fault is a deliberate failure of the provider.
type fault int

// The faults, a closed set.
const (
	noFault     fault = iota
	limited           // 429 without a rate limit that is used up
	unavailable       // 503
	overloaded        // 529 of Anthropic, 503 of OpenAI
	errorEvent        // 200, and an event stream that begins with an error; not a stream: overloaded
	cutBefore         // generated and billed; the connection ends before the first content
	cutAfter          // the same after the first content
	spent             // 429: the account is used up
	faults            // how many there are
)

var faultNames = [faults]string{"none", "429", "503", "overloaded", "error event", "cut before the content", "cut after it", "account used up"}

// schedule decides what happens to each job and attempt. It follows from the seed, whichever way a job comes.
// It is safe for concurrent use.
type schedule struct {
	seed   uint64
	median time.Duration // of the time for a generation
	sigma  float64       // of its logarithm
	errors float64       // share of attempts that get a fault, in [0, 1]
}

// job is a request of the client's user.
type job struct {
	number     int
	tokens     int
	generation time.Duration
	stream     bool
}

const (
	medianTokens = 300
	sigmaTokens  = 0.6
	// meanTokens of a lognormal distribution is median * exp(sigma² / 2).
	meanTokens = medianTokens * 1.1972
	mostTokens = 1500
)

func (f *schedule) source(number, attempt int) *rand.Rand {
	return rand.New(rand.NewPCG(f.seed, uint64(number)<<16|uint64(attempt)))
}

// jobOf returns a job. Half of them are streamed, and those whose fault is an event.
func (f *schedule) jobOf(number int) job {
	r := f.source(number, 1<<15)
	tokens := medianTokens * math.Exp(sigmaTokens*r.NormFloat64())
	generation := float64(f.median) * math.Exp(f.sigma*r.NormFloat64())
	j := job{number: number, tokens: int(min(max(tokens, 10), mostTokens)), generation: time.Duration(generation), stream: r.IntN(2) == 0}
	if first, turn := f.first(number); first != noFault {
		j.stream = (turn+int(first))%2 == 0 || first == errorEvent
	}
	return j
}

// faultPlan is the fault of an attempt, and how it shows.
type faultPlan struct {
	fault fault
	wait  time.Duration // that a rejection asks for; 0: it asks for none

	// second is another form of a fault: a 429 with rate-limit headers but no Retry-After, or an error event
	// or a cut after the first events of a message.
	second bool
}

// first returns the fault of the first attempt of a job. The faults come in turn, so that a
// short run has all of them; turn counts the rounds.
func (f *schedule) first(number int) (it fault, turn int) {
	n := int(float64(number) * f.errors)
	if n == int(float64(number+1)*f.errors) {
		return noFault, 0
	}
	kinds := int(faults) - 1
	return 1 + fault(n%kinds), n / kinds
}

// of returns what happens to an attempt; the first of a job is 0. A used-up account remains used up. Other later
// attempts get a fault at random.
func (f *schedule) of(number, attempt int) (it faultPlan) {
	r := f.source(number, attempt)
	first, turn := f.first(number)
	switch {
	case attempt == 0 || first == spent:
		it.fault = first
	case r.Float64() < f.errors:
		it.fault = 1 + fault(r.IntN(int(spent)-1)) // any other: a job is not told so in its middle
	}
	if r.IntN(3) > 0 {
		it.wait = time.Duration(100+r.IntN(900)) * time.Millisecond
	}
	it.second = turn%4 >= 2
	if it.fault == limited && it.second {
		it.wait = max(it.wait, 100*time.Millisecond)
	}
	return it
}
