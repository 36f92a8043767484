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
func (q *Queue[T]) oldest() int32 { return q.nodes[0].next }
func (q *Queue[T]) newest() int32 { return q.nodes[0].prev }

// Full reports whether Push would drop the oldest.
func (q *Queue[T]) Full() bool { return q.n >= q.capacity }

// Len returns the number of values in the queue.
func (q *Queue[T]) Len() int { return q.n }

// Push adds v at the end. If the queue was full, dropped is true and out is the oldest
// value, which was removed. The caller must then notify it and call Guard.CancelWait.
func (q *Queue[T]) Push(v T) (t Ticket, out T, dropped bool) {
	if q.Full() {
		out, dropped = q.Oldest()
	}
	return q.insert(v, q.newest()), out, dropped
}

// Insert adds v behind the values for which after returns true, which must be the first ones of
// the queue. It searches from both ends at once, since most values belong near one of them. If
// the queue was full, dropped is true and out is the oldest value, v included, as with Push.
func (q *Queue[T]) Insert(v T, after func(T) bool) (t Ticket, out T, dropped bool) {
	if q.Full() {
		if !after(q.nodes[q.oldest()].value) {
			return Ticket{}, v, true
		}
		out, dropped = q.Oldest()
	}
	front, back := q.oldest(), q.newest()
	for back != 0 && !after(q.nodes[back].value) {
		if !after(q.nodes[front].value) {
			back = q.nodes[front].prev
			break
		}
		front, back = q.nodes[front].next, q.nodes[back].prev
	}
	return q.insert(v, back), out, dropped
}

// insert adds v behind the node prev; 0: at the beginning.
func (q *Queue[T]) insert(v T, prev int32) Ticket {
	i := q.free
	if i == 0 {
		q.nodes = append(q.nodes, queueNode[T]{})
		i = int32(len(q.nodes) - 1)
	} else {
		q.free = q.nodes[i].next
	}
	s, before := &q.nodes[i], &q.nodes[prev]
	s.value, s.prev, s.next = v, prev, before.next
	q.nodes[s.next].prev, before.next = i, i
	s.generation++
	q.n++
	return Ticket{node: i, generation: s.generation}
}

// Oldest removes and returns the oldest value.
func (q *Queue[T]) Oldest() (v T, ok bool) { return q.take(q.oldest()) }

// Newest removes and returns the newest value. After an outage this is the better end. The
// oldest clients have left or are about to, and a response to a client that has left wastes
// work and delays the next one.
func (q *Queue[T]) Newest() (v T, ok bool) { return q.take(q.newest()) }

// Last returns the newest value, which stays in the queue.
func (q *Queue[T]) Last() (v T, ok bool) {
	i := q.newest()
	return q.nodes[i].value, i != 0
}

// NewestThat removes and returns the newest value for which fits returns true. It takes linear
// time where few values fit.
func (q *Queue[T]) NewestThat(fits func(T) bool) (v T, ok bool) {
	for i := q.newest(); i != 0; i = q.nodes[i].prev {
		if fits(q.nodes[i].value) {
			return q.take(i)
		}
	}
	return v, false
}

// OldestThat removes and returns the oldest value for which fits returns true. It takes linear
// time where few values fit.
func (q *Queue[T]) OldestThat(fits func(T) bool) (v T, ok bool) {
	for i := q.oldest(); i != 0; i = q.nodes[i].next {
		if fits(q.nodes[i].value) {
			return q.take(i)
		}
	}
	return v, false
}

// First returns the oldest value, which stays in the queue.
func (q *Queue[T]) First() (v T, ok bool) {
	i := q.oldest()
	return q.nodes[i].value, i != 0
}

// Remove removes the value with ticket t and reports whether it was still in the queue.
func (q *Queue[T]) Remove(t Ticket) bool {
	if t.generation&1 == 0 || int(t.node) >= len(q.nodes) || q.nodes[t.node].generation != t.generation {
		return false
	}
	q.take(t.node)
	return true
}

func (q *Queue[T]) take(i int32) (v T, ok bool) {
	if i == 0 {
		return v, false
	}
	s := &q.nodes[i]
	q.nodes[s.prev].next, q.nodes[s.next].prev = s.next, s.prev
	var none T
	v, s.value = s.value, none
	s.generation++
	s.next = q.free
	q.free = i
	q.n--
	return v, true
}
