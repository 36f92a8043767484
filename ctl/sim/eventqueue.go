package sim

import "time"

// event is an event of a client, job, proxy, process or fault at a time.
type event struct {
	at   time.Duration
	n    uint32 // order of events with the same time; wraps around
	who  int32  // index of the client, job, proxy, process or fault
	turn uint32 // the event is void if the current turn of who differs
	kind eventKind
}

type eventKind uint8

func (e *event) before(o *event) bool {
	return e.at < o.at || e.at == o.at && int32(e.n-o.n) < 0
}

// eventQueue returns events in the order of time, and those of the same time in the order
// in which they were added. It does not allocate per event once it has reached its maximum
// size.
//
// It is a heap with four children per node: half as deep as a binary one, and the four are
// adjacent in memory. An event cannot be removed. It becomes void by its turn.
type eventQueue struct {
	now  time.Duration
	end  time.Duration // later events are not kept
	n    uint32
	heap []event
}

const children = 4

func newEventQueue(end time.Duration) *eventQueue { return &eventQueue{end: end} }

// after adds an event, delay from now.
func (q *eventQueue) after(delay time.Duration, kind eventKind, who int32, turn uint32) {
	q.n++
	e := event{at: q.now + max(delay, 0), n: q.n, kind: kind, who: who, turn: turn}
	if e.at >= q.end {
		return
	}
	q.heap = append(q.heap, e)
	h := q.heap
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / children
		if !e.before(&h[p]) {
			break
		}
		h[i] = h[p]
		i = p
	}
	h[i] = e
}

// next removes and returns the earliest event, and advances now to it.
func (q *eventQueue) next() (event, bool) {
	last := len(q.heap) - 1
	if last < 0 {
		return event{}, false
	}
	first, e := q.heap[0], q.heap[last]
	q.now = first.at
	q.heap = q.heap[:last]
	if last > 0 {
		q.sink(e)
	}
	return first, true
}

// sink puts e into the free place at the top, and moves it down to where it belongs.
func (q *eventQueue) sink(e event) {
	h, i := q.heap, 0
	for {
		k := i*children + 1
		if k >= len(h) {
			break
		}
		for o, end := k+1, min(k+children, len(h)); o < end; o++ {
			if h[o].before(&h[k]) {
				k = o
			}
		}
		if !h[k].before(&e) {
			break
		}
		h[i] = h[k]
		i = k
	}
	h[i] = e
}
