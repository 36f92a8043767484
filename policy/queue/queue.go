// Package queue provides a bounded queue. The oldest and the newest value, and any value by
// its ticket, can be removed in constant time.
package queue

// Queue is a bounded queue of requests that wait for a breaker.Guard. If it is full, the
// oldest is dropped. Values are removed from either end; see Queue.Newest. With Insert alone it
// is sorted by the caller's order, and its oldest is the first of it. It is not safe
// for concurrent use: the caller holds a lock around it and around Guard.Acquire and
// Guard.Next. Make one with New. It allocates only while it grows.
type Queue[T any] struct {
	nodes       []queueNode[T] // the first one holds no value: the oldest is next to it, and the newest before it
	free        int32          // first unused node, linked by next; 0: none
	n, capacity int
}

type queueNode[T any] struct {
	value      T
	prev, next int32
	generation uint32 // odd while in use; distinguishes tickets of successive values
}

// Ticket identifies a value in a Queue. The zero Ticket is none.
type Ticket struct {
	node       int32
	generation uint32
}

// New returns an empty queue for at most n values, at least 1.
func New[T any](n int) *Queue[T] {
	return &Queue[T]{nodes: make([]queueNode[T], 1), capacity: max(n, 1)}
}

// oldest and newest return the ends of the queue; 0: it is empty.
func (l *Queue[T]) oldest() int32 { return l.nodes[0].next }
func (l *Queue[T]) newest() int32 { return l.nodes[0].prev }

// Full reports whether Push would drop the oldest.
func (l *Queue[T]) Full() bool { return l.n >= l.capacity }

// Len returns the number of values in the queue.
func (l *Queue[T]) Len() int { return l.n }

// Push adds v at the end. If the queue was full, dropped is true and out is the oldest
// value, which was removed. The caller must then notify it and call Guard.CancelWait.
func (l *Queue[T]) Push(v T) (t Ticket, out T, dropped bool) {
	if l.Full() {
		out, dropped = l.Oldest()
	}
	return l.insert(v, l.newest()), out, dropped
}

// Insert adds v behind the values for which after returns true, which must be the first ones of
// the queue. It searches from both ends at once, since most values belong near one of them. If
// the queue was full, dropped is true and out is the oldest value, v included, as with Push.
func (l *Queue[T]) Insert(v T, after func(T) bool) (t Ticket, out T, dropped bool) {
	if l.Full() {
		if !after(l.nodes[l.oldest()].value) {
			return Ticket{}, v, true
		}
		out, dropped = l.Oldest()
	}
	front, back := l.oldest(), l.newest()
	for back != 0 && !after(l.nodes[back].value) {
		if !after(l.nodes[front].value) {
			back = l.nodes[front].prev
			break
		}
		front, back = l.nodes[front].next, l.nodes[back].prev
	}
	return l.insert(v, back), out, dropped
}

// insert adds v behind the node prev; 0: at the beginning.
func (l *Queue[T]) insert(v T, prev int32) Ticket {
	i := l.free
	if i == 0 {
		l.nodes = append(l.nodes, queueNode[T]{})
		i = int32(len(l.nodes) - 1)
	} else {
		l.free = l.nodes[i].next
	}
	s, before := &l.nodes[i], &l.nodes[prev]
	s.value, s.prev, s.next = v, prev, before.next
	l.nodes[s.next].prev, before.next = i, i
	s.generation++
	l.n++
	return Ticket{node: i, generation: s.generation}
}

// Oldest removes and returns the oldest value.
func (l *Queue[T]) Oldest() (v T, ok bool) { return l.take(l.oldest()) }

// Newest removes and returns the newest value. After an outage this is the better end. The
// oldest clients have left or are about to, and a response to a client that has left wastes
// work and delays the next one.
func (l *Queue[T]) Newest() (v T, ok bool) { return l.take(l.newest()) }

// Last returns the newest value, which stays in the queue.
func (l *Queue[T]) Last() (v T, ok bool) {
	i := l.newest()
	return l.nodes[i].value, i != 0
}

// NewestThat removes and returns the newest value for which fits returns true. It takes linear
// time where few values fit.
func (l *Queue[T]) NewestThat(fits func(T) bool) (v T, ok bool) {
	for i := l.newest(); i != 0; i = l.nodes[i].prev {
		if fits(l.nodes[i].value) {
			return l.take(i)
		}
	}
	return v, false
}

// OldestThat removes and returns the oldest value for which fits returns true. It takes linear
// time where few values fit.
func (l *Queue[T]) OldestThat(fits func(T) bool) (v T, ok bool) {
	for i := l.oldest(); i != 0; i = l.nodes[i].next {
		if fits(l.nodes[i].value) {
			return l.take(i)
		}
	}
	return v, false
}

// First returns the oldest value, which stays in the queue.
func (l *Queue[T]) First() (v T, ok bool) {
	i := l.oldest()
	return l.nodes[i].value, i != 0
}

// Remove removes the value with ticket t and reports whether it was still in the queue.
func (l *Queue[T]) Remove(t Ticket) bool {
	if t.generation&1 == 0 || int(t.node) >= len(l.nodes) || l.nodes[t.node].generation != t.generation {
		return false
	}
	l.take(t.node)
	return true
}

func (l *Queue[T]) take(i int32) (v T, ok bool) {
	if i == 0 {
		return v, false
	}
	s := &l.nodes[i]
	l.nodes[s.prev].next, l.nodes[s.next].prev = s.next, s.prev
	var none T
	v, s.value = s.value, none
	s.generation++
	s.next = l.free
	l.free = i
	l.n--
	return v, true
}
