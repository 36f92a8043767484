package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// tickTime is how finely times of recovery are known, as in policy/storm.
const tickTime = 100 * time.Millisecond

// tick is what happened within tickTime, or within any longer stretch.
type tick struct {
	Good   int `json:"good"`
	Bad    int `json:"bad"`
	Late   int `json:"late"`
	AtOnce int `json:"at_once"` // most requests that the server had, as far as it could tell
}

func (t tick) all() int { return t.Good + t.Bad + t.Late }

// fails is the share of tries that did not bring a good response, 0 of none.
func (t tick) fails() float64 {
	if t.all() == 0 {
		return 0
	}
	return float64(t.Bad+t.Late) / float64(t.all())
}

// record is what happened in a run. It is safe for concurrent use.
type record struct {
	made  time.Time
	began atomic.Int64 // nanoseconds after made: where its time starts

	mu     sync.Mutex // guards what follows
	ended  bool
	ticks  []tick
	kinds  []map[string]int // per second: what the bad ones were
	events []event
	proxy  []sample
}

// event is something that the runner did.
type event struct {
	At   float64 `json:"at_seconds"`
	What string  `json:"what"`
}

func newRecord(length time.Duration) *record {
	return &record{
		made:  time.Now(),
		ticks: make([]tick, length/tickTime),
		kinds: make([]map[string]int, length/time.Second+1),
	}
}

// begin starts its time. What others noted before stays, at its start.
func (r *record) begin() { r.began.Store(int64(time.Since(r.made))) }

// since is the time since the beginning.
func (r *record) since() time.Duration {
	return max(0, time.Since(r.made)-time.Duration(r.began.Load()))
}

// end freezes the ticks: what the server still tells is left out, so they can
// be read without the lock.
func (r *record) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
}

// note adds to the current tick; what comes after the end is left out.
func (r *record) note(do func(t *tick)) {
	i := int(r.since() / tickTime)
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < len(r.ticks) && !r.ended {
		do(&r.ticks[i])
	}
}

func (r *record) good()        { r.note(func(t *tick) { t.Good++ }) }
func (r *record) late()        { r.note(func(t *tick) { t.Late++ }) }
func (r *record) atOnce(n int) { r.note(func(t *tick) { t.AtOnce = max(t.AtOnce, n) }) }

// bad notes a bad answer and its kind: a status or what went wrong.
func (r *record) bad(kind string) {
	r.note(func(t *tick) {
		t.Bad++
		s := &r.kinds[r.since()/time.Second]
		if *s == nil {
			*s = map[string]int{}
		}
		(*s)[kind]++
	})
}

// happened notes an event and says when it was.
func (r *record) happened(what string) time.Duration {
	at := r.since()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event{at.Seconds(), what})
	return at
}

// sampled keeps a sample of the proxies.
func (r *record) sampled(s sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.proxy = append(r.proxy, s)
}

// sum adds up from from (inclusive) to to (exclusive).
func (r *record) sum(from, to time.Duration) tick {
	r.mu.Lock()
	defer r.mu.Unlock()
	return sum(r.ticks, from, to)
}

// sum adds up ticks from from (inclusive) to to (exclusive), to whole ticks.
func sum(ticks []tick, from, to time.Duration) tick {
	var s tick
	first := max(0, min(int(from/tickTime), len(ticks)))
	last := max(first, min(int(to/tickTime), len(ticks)))
	for _, t := range ticks[first:last] {
		s.Good += t.Good
		s.Bad += t.Bad
		s.Late += t.Late
		s.AtOnce = max(s.AtOnce, t.AtOnce)
	}
	return s
}
