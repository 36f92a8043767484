package storm

import "time"

// event is something that happens to somebody at a time.
type event struct {
	at   time.Duration
	n    uint64 // order of events of the same time
	who  int32
	turn uint32 // the event is void when who's turn has moved on
	kind eventKind
}

type eventKind uint8

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.n < o.n }

// queue gives events in the order of time. Most come a constant delay after
// the present, so those of one delay are in order anyway: each such delay has a
// lane, a plain first-in first-out ring. What is left goes to a heap.
type queue struct {
	now   time.Duration
	n     uint64
	heap  []event
	lanes []lane
}

type lane struct {
	delay time.Duration
	ring  []event // its length is a power of two
	head  int
	n     int
}

func newQueue(delays ...time.Duration) *queue {
	q := &queue{}
	for _, d := range delays {
		if d > 0 && q.lane(d) == nil {
			q.lanes = append(q.lanes, lane{delay: d, ring: make([]event, 64)})
		}
	}
	return q
}

func (q *queue) lane(delay time.Duration) *lane {
	for i := range q.lanes {
		if q.lanes[i].delay == delay {
			return &q.lanes[i]
		}
	}
	return nil
}

// after adds an event, delay from now.
func (q *queue) after(delay time.Duration, kind eventKind, who int32, turn uint32) {
	q.n++
	e := event{at: q.now + max(delay, 0), n: q.n, kind: kind, who: who, turn: turn}
	if l := q.lane(delay); l != nil {
		l.push(e)
		return
	}
	q.heap = append(q.heap, e)
	q.up(len(q.heap) - 1)
}

func (l *lane) push(e event) {
	if l.n == len(l.ring) {
		bigger := make([]event, 2*l.n)
		for i := range l.n {
			bigger[i] = l.ring[(l.head+i)&(l.n-1)]
		}
		l.ring, l.head = bigger, 0
	}
	l.ring[(l.head+l.n)&(len(l.ring)-1)] = e
	l.n++
}

// next takes the earliest event and moves the present there.
func (q *queue) next() (event, bool) {
	var first *event
	from := -1
	if len(q.heap) > 0 {
		first = &q.heap[0]
	}
	for i := range q.lanes {
		l := &q.lanes[i]
		if l.n == 0 {
			continue
		}
		if e := &l.ring[l.head]; first == nil || e.before(first) {
			first, from = e, i
		}
	}
	if first == nil {
		return event{}, false
	}
	e := *first
	q.now = e.at
	if from < 0 {
		q.pop()
		return e, true
	}
	l := &q.lanes[from]
	l.head = (l.head + 1) & (len(l.ring) - 1)
	l.n--
	return e, true
}

// The heap has four children to a node: half as deep as a binary one, and the
// four lie together.
const children = 4

func (q *queue) up(i int) {
	h := q.heap
	e := h[i]
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

func (q *queue) pop() {
	h := q.heap
	last := len(h) - 1
	e := h[last]
	h = h[:last]
	q.heap = h
	if last == 0 {
		return
	}
	i := 0
	for {
		c := i*children + 1
		if c >= last {
			break
		}
		for k, end := c+1, min(c+children, last); k < end; k++ {
			if h[k].before(&h[c]) {
				c = k
			}
		}
		if !h[c].before(&e) {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = e
}
