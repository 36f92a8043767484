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

func (e *event) before(o *event) bool { return earlier(e.at, e.n, o.at, o.n) }

func earlier(at time.Duration, n uint32, than time.Duration, thanN uint32) bool {
	return at < than || at == than && int32(n-thanN) < 0
}

// eventQueue returns events in the order of time. Most events have one of a few constant
// delays, and events with the same delay are added in order. So each such delay has a lane,
// whose events can be cancelled, as most timeouts are. The others are in a calendar.
//
// It does not allocate per event once it has reached its maximum size.
type eventQueue struct {
	now time.Duration
	end time.Duration // later events are not kept
	n   uint32
	calendar
	lanes []lane
	nodes []node // of all lanes; index 0 is unused
	free  int32  // first unused node, linked by next
}

// lane is the doubly linked list of the events with one delay.
type lane struct {
	at    time.Duration // of the first event
	n     uint32        // of the first event
	first int32         // 0: empty
	last  int32
	delay time.Duration
}

type node struct {
	event
	next, prev int32
	lane       int32
}

// timer identifies an event that may be cancelled. The zero timer is none.
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

// after adds an event, delay from now. It returns a timer only for a delay that was passed
// to newEventQueue.
func (q *eventQueue) after(delay time.Duration, kind eventKind, who int32, turn uint32) timer {
	q.n++
	e := event{at: q.now + max(delay, 0), n: q.n, kind: kind, who: who, turn: turn}
	if e.at >= q.end {
		return timer{}
	}
	if l := q.lane(delay); l >= 0 {
		return q.append(int32(l), e)
	}
	q.schedule(e)
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

// cancel removes the event if it is still pending.
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
	d.n-- // invalidates its timer
}

// next removes and returns the earliest event, and advances now to it.
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
