// Package queue provides a bounded queue. The oldest and the newest value, and any value by
// its ticket, can be removed in constant time.
package queue

import "container/list"

// Queue is a bounded queue of requests that wait for a breaker.Guard. If it is full, the
// oldest is dropped. Values are removed from either end; see Queue.Newest. With Insert alone it
// is sorted by the caller's order, and its oldest is the first of it. It is not safe
// for concurrent use: the caller holds a lock around it and around Guard.Acquire and
// Guard.Next. Make one with New.
type Queue[T any] struct {
	values   list.List
	capacity int
}

// Ticket identifies a value in a Queue. The zero Ticket is none.
type Ticket struct{ element *list.Element }

// New returns an empty queue for at most n values, at least 1.
func New[T any](n int) *Queue[T] { return &Queue[T]{capacity: max(n, 1)} }

// Full reports whether Push would drop the oldest.
func (l *Queue[T]) Full() bool { return l.Len() >= l.capacity }

// Len returns the number of values in the queue.
func (l *Queue[T]) Len() int { return l.values.Len() }

// Push adds v at the end. If the queue was full, dropped is true and out is the oldest
// value, which was removed. The caller must then notify it and call Guard.CancelWait.
func (l *Queue[T]) Push(v T) (t Ticket, out T, dropped bool) {
	if l.Full() {
		out, dropped = l.Oldest()
	}
	return Ticket{l.values.PushBack(v)}, out, dropped
}

// Insert adds v behind the values for which after returns true, which must be the first ones of
// the queue. It searches from both ends at once, since most values belong near one of them. If
// the queue was full, dropped is true and out is the oldest value, v included, as with Push.
func (l *Queue[T]) Insert(v T, after func(T) bool) (t Ticket, out T, dropped bool) {
	if first, _ := l.First(); l.Full() && !after(first) {
		return Ticket{}, v, true
	}
	if l.Full() {
		out, dropped = l.Oldest()
	}
	front, back := l.values.Front(), l.values.Back()
	for back != nil && !after(back.Value.(T)) {
		if !after(front.Value.(T)) {
			return Ticket{l.values.InsertBefore(v, front)}, out, dropped
		}
		front, back = front.Next(), back.Prev()
	}
	if back == nil {
		return Ticket{l.values.PushFront(v)}, out, dropped
	}
	return Ticket{l.values.InsertAfter(v, back)}, out, dropped
}

// Oldest removes and returns the oldest value.
func (l *Queue[T]) Oldest() (v T, ok bool) { return l.take(l.values.Front()) }

// Newest removes and returns the newest value. After an outage this is the better end. The
// oldest clients have left or are about to, and a response to a client that has left wastes
// work and delays the next one.
func (l *Queue[T]) Newest() (v T, ok bool) { return l.take(l.values.Back()) }

// First returns the oldest value, which stays in the queue.
func (l *Queue[T]) First() (v T, ok bool) { return value[T](l.values.Front()) }

// Last returns the newest value, which stays in the queue.
func (l *Queue[T]) Last() (v T, ok bool) { return value[T](l.values.Back()) }

// NewestThat removes and returns the newest value for which fits returns true. It takes linear
// time where few values fit.
func (l *Queue[T]) NewestThat(fits func(T) bool) (v T, ok bool) {
	return l.that(l.values.Back(), (*list.Element).Prev, fits)
}

// OldestThat removes and returns the oldest value for which fits returns true. It takes linear
// time where few values fit.
func (l *Queue[T]) OldestThat(fits func(T) bool) (v T, ok bool) {
	return l.that(l.values.Front(), (*list.Element).Next, fits)
}

func (l *Queue[T]) that(e *list.Element, next func(*list.Element) *list.Element, fits func(T) bool) (v T, ok bool) {
	for ; e != nil; e = next(e) {
		if fits(e.Value.(T)) {
			return l.take(e)
		}
	}
	return v, false
}

// Remove removes the value with ticket t and reports whether it was still in the queue.
func (l *Queue[T]) Remove(t Ticket) bool {
	if t.element == nil || t.element.Value == nil {
		return false
	}
	l.take(t.element)
	return true
}

// take removes e, and its value from it: a ticket keeps nothing alive.
func (l *Queue[T]) take(e *list.Element) (v T, ok bool) {
	if v, ok = value[T](e); ok {
		l.values.Remove(e)
		e.Value = nil
	}
	return v, ok
}

func value[T any](e *list.Element) (v T, ok bool) {
	if e != nil {
		v, ok = e.Value.(T)
	}
	return v, ok
}
