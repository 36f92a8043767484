package storm

import "time"

// event is something that happens to somebody at a time.
type event struct {
	at   time.Duration
	n    uint32 // order of events of the same time; wraps around
	who  int32
	turn uint32 // the event is void when who's turn has moved on
	kind eventKind
}

type eventKind uint8

func (e *event) before(o *event) bool { return earlier(e.at, e.n, o.at, o.n) }

func earlier(at time.Duration, n uint32, than time.Duration, thanN uint32) bool {
	return at < than || at == than && int32(n-thanN) < 0
}

// eventQueue gives events in the order of time. Most come a constant delay after
// the present, so those of one delay are in order anyway: each such delay has a
// lane, and its events can be cancelled, as most timeouts are. What is left
// goes to a calendar.
//
// Nothing is allocated per event once the queue has seen its largest size.
type eventQueue struct {
	now time.Duration
	end time.Duration // what is due from here on is not kept
	n   uint32
	calendar
	lanes []lane
	nodes []node // of all lanes; 0 is none
	free  int32  // first unused node, linked by next
}

// lane is the events of one delay, a doubly linked list.
type lane struct {
	at    time.Duration // of the first
	n     uint32        // of the first
	first int32         // 0: empty
	last  int32
	delay time.Duration
}

type node struct {
	event
	next, prev int32
	lane       int32
}

// timer is an event that may be cancelled. The zero timer is none.
type timer struct {
	node int32
	n    uint32
}

func newEventQueue(end time.Duration, delays ...time.Duration) *eventQueue {
	q := &eventQueue{end: end, nodes: make([]node, 1)}
	q.pages = make([][]event, calendarPages)
	for _, d := range delays {
		if d > 0 && q.lane(d) < 0 {
			q.lanes = append(q.lanes, lane{delay: d})
		}
	}
	return q
}

func (q *eventQueue) lane(delay time.Duration) int {
	for i := range q.lanes {
		if q.lanes[i].delay == delay {
			return i
		}
	}
	return -1
}

// after adds an event, delay from now. Only one of a delay that the queue was
// made for gives a timer.
func (q *eventQueue) after(delay time.Duration, kind eventKind, who int32, turn uint32) timer {
	q.n++
	e := event{at: q.now + max(delay, 0), n: q.n, kind: kind, who: who, turn: turn}
	if e.at >= q.end {
		return timer{}
	}
	if l := q.lane(delay); l >= 0 {
		return q.append(int32(l), e)
	}
	q.file(e)
	return timer{}
}

func (q *eventQueue) append(l int32, e event) timer {
	i := q.free
	if i == 0 {
		i = int32(len(q.nodes))
		q.nodes = append(q.nodes, node{})
	} else {
		q.free = q.nodes[i].next
	}
	lane := &q.lanes[l]
	q.nodes[i] = node{event: e, prev: lane.last, lane: l}
	if lane.first == 0 {
		lane.first, lane.at, lane.n = i, e.at, e.n
	} else {
		q.nodes[lane.last].next = i
	}
	lane.last = i
	return timer{i, e.n}
}

// cancel takes the event away, if it is still to come.
func (q *eventQueue) cancel(t timer) {
	if t.node != 0 && q.nodes[t.node].n == t.n {
		q.remove(t.node)
	}
}

func (q *eventQueue) remove(i int32) {
	d := &q.nodes[i]
	l := &q.lanes[d.lane]
	if d.next == 0 {
		l.last = d.prev
	} else {
		q.nodes[d.next].prev = d.prev
	}
	if d.prev != 0 {
		q.nodes[d.prev].next = d.next
	} else {
		l.first = d.next
		f := &q.nodes[d.next]
		l.at, l.n = f.at, f.n
	}
	d.next, q.free = q.free, i
	d.n-- // voids its timer
}

// next takes the earliest event and moves the present there.
func (q *eventQueue) next() (event, bool) {
	var first *lane
	for i := range q.lanes {
		if l := &q.lanes[i]; l.first != 0 && (first == nil || earlier(l.at, l.n, first.at, first.n)) {
			first = l
		}
	}
	until := Never
	if first != nil {
		until = first.at
	}
	if e := q.head(until); e != nil && (first == nil || earlier(e.at, e.n, first.at, first.n)) {
		q.now = e.at
		return q.take(), true
	}
	if first == nil {
		return event{}, false
	}
	e := q.nodes[first.first].event
	q.now = e.at
	q.remove(first.first)
	return e, true
}
