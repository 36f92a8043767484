package main

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// tickTime is how finely a record is kept.
const tickTime = 100 * time.Millisecond

// tick is what happened within a stretch of time.
type tick struct {
	Sent     int `json:"sent"`     // requests that came to the upstream
	Limited  int `json:"limited"`  // of them, answered 429
	Good     int `json:"good"`     // clients with a 200
	Turned   int `json:"turned"`   // clients with a 429, of whomever
	Failed   int `json:"failed"`   // clients with anything else
	Late     int `json:"late"`     // clients with nothing in time
	Commands int `json:"commands"` // that the engine got
}

func (t *tick) add(o tick) {
	t.Sent += o.Sent
	t.Limited += o.Limited
	t.Good += o.Good
	t.Turned += o.Turned
	t.Failed += o.Failed
	t.Late += o.Late
	t.Commands += o.Commands
}

// requests are those of clients that ended.
func (t tick) requests() int { return t.Good + t.Turned + t.Failed + t.Late }

// limitedShare is the part of what came to the upstream that was refused; 0 of
// nothing.
func (t tick) limitedShare() float64 { return share(t.Limited, t.Sent) }

func share(part, whole int) float64 { return float64(part) / float64(max(whole, 1)) }

// record is what happened, from its making on. Safe for concurrent use.
type record struct {
	made time.Time

	mu    sync.Mutex // guards what follows
	ticks []tick
	kinds map[string]int // what failures were
	waits []time.Duration
}

func newRecord() *record { return &record{made: time.Now(), kinds: map[string]int{}} }

func (r *record) since() time.Duration { return time.Since(r.made) }

func (r *record) note(do func(t *tick)) {
	i := int(r.since() / tickTime)
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ticks) <= i {
		r.ticks = append(r.ticks, tick{})
	}
	do(&r.ticks[i])
}

func (r *record) sent(ok bool) {
	r.note(func(t *tick) {
		t.Sent++
		if !ok {
			t.Limited++
		}
	})
}

// got notes a client's answer and how long it took.
func (r *record) got(status int, took time.Duration) {
	r.note(func(t *tick) {
		if status == 200 {
			t.Good++
		} else {
			t.Turned++
		}
		r.waits = append(r.waits, took)
	})
}

func (r *record) failed(kind string) {
	r.note(func(t *tick) {
		t.Failed++
		r.kinds[kind]++
	})
}

func (r *record) late() { r.note(func(t *tick) { t.Late++ }) }

func (r *record) commands(n int) { r.note(func(t *tick) { t.Commands += n }) }

// sum adds up from from (inclusive) to to (exclusive), to whole ticks.
func (r *record) sum(from, to time.Duration) tick {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s tick
	for i := max(0, int(from/tickTime)); i < min(int(to/tickTime), len(r.ticks)); i++ {
		s.add(r.ticks[i])
	}
	return s
}

// failures are the kinds of those so far.
func (r *record) failures() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.kinds)
}

// wait is the time within which this share of all clients had their response.
func (r *record) wait(share float64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waits) == 0 {
		return 0
	}
	all := slices.Sorted(slices.Values(r.waits))
	return all[min(int(share*float64(len(all))), len(all)-1)]
}
