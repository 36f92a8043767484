package policy

// Queue is where those stand who were told to wait by a Guard: bounded, the
// oldest dropped first. It gives back whoever came last or whoever came first;
// see Line.Newest. It is not safe for concurrent use: its user holds a lock
// around it and around Guard.Acquire and Guard.Next. Make one with NewQueue. It
// allocates only while it grows.
type Queue[T any] struct {
	nodes       []queueNode[T]
	free        int32 // first of the unused spots, linked by next
	first, last int32
	n, most     int
}

type queueNode[T any] struct {
	value      T
	prev, next int32
	turn       uint32 // odd while in use; tells tickets of different users apart
}

const noNode = -1

// Ticket is a spot in a Line. The zero Ticket is none.
type Ticket struct {
	node int32
	turn uint32
}

// NewQueue makes an empty line for at most n, at least 1.
func NewQueue[T any](n int) *Queue[T] {
	return &Queue[T]{free: noNode, first: noNode, last: noNode, most: max(n, 1)}
}

// Full says whether Push would drop the oldest.
func (l *Queue[T]) Full() bool { return l.n >= l.most }

// Len is how many wait in queue.
func (l *Queue[T]) Len() int { return l.n }

// Push puts v at the end. When the queue was full, the oldest was dropped for
// it: dropped is true and out is that one, which then must be told (and
// Guard.CancelWait).
func (l *Queue[T]) Push(v T) (t Ticket, out T, dropped bool) {
	if l.Full() {
		out, dropped = l.Oldest()
	}
	i := l.free
	if i == noNode {
		l.nodes = append(l.nodes, queueNode[T]{})
		i = int32(len(l.nodes) - 1)
	} else {
		l.free = l.nodes[i].next
	}
	s := &l.nodes[i]
	s.value, s.prev, s.next = v, l.last, noNode
	s.turn++
	if l.last == noNode {
		l.first = i
	} else {
		l.nodes[l.last].next = i
	}
	l.last = i
	l.n++
	return Ticket{node: i, turn: s.turn}, out, dropped
}

// Oldest takes out who came first.
func (l *Queue[T]) Oldest() (v T, ok bool) { return l.take(l.first) }

// Newest takes out who came last. After an outage this is the better end:
// those at the other end have lost patience or are about to, and an answer to
// somebody who has left is work for nothing that makes the next one late too.
func (l *Queue[T]) Newest() (v T, ok bool) { return l.take(l.last) }

// Last is who came last, and stays in the queue.
func (l *Queue[T]) Last() (v T, ok bool) {
	if l.last == noNode {
		return v, false
	}
	return l.nodes[l.last].value, true
}

// NewestThat takes out who came last of those for whom fits holds.
func (l *Queue[T]) NewestThat(fits func(T) bool) (v T, ok bool) {
	for i := l.last; i != noNode; i = l.nodes[i].prev {
		if fits(l.nodes[i].value) {
			return l.take(i)
		}
	}
	return v, false
}

// First is who came first, and stays in the queue.
func (l *Queue[T]) First() (v T, ok bool) {
	if l.first == noNode {
		return v, false
	}
	return l.nodes[l.first].value, true
}

// OldestThat takes out who came first of those for whom fits holds.
func (l *Queue[T]) OldestThat(fits func(T) bool) (v T, ok bool) {
	for i := l.first; i != noNode; i = l.nodes[i].next {
		if fits(l.nodes[i].value) {
			return l.take(i)
		}
	}
	return v, false
}

// Remove takes out the one with ticket t; no when it is not in the queue any more.
func (l *Queue[T]) Remove(t Ticket) bool {
	if t.turn&1 == 0 || int(t.node) >= len(l.nodes) || l.nodes[t.node].turn != t.turn {
		return false
	}
	l.take(t.node)
	return true
}

func (l *Queue[T]) take(i int32) (v T, ok bool) {
	if i == noNode {
		return v, false
	}
	s := &l.nodes[i]
	if s.prev == noNode {
		l.first = s.next
	} else {
		l.nodes[s.prev].next = s.next
	}
	if s.next == noNode {
		l.last = s.prev
	} else {
		l.nodes[s.next].prev = s.prev
	}
	var none T
	v, s.value = s.value, none
	s.turn++
	s.next = l.free
	l.free = i
	l.n--
	return v, true
}
