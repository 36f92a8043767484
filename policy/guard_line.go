package policy

// Line is where those stand who were told to wait by a Guard: bounded, the
// oldest dropped first. It gives back whoever came last or whoever came first;
// see Line.Newest. It is not safe for concurrent use: its user holds a lock
// around it and around Guard.Enter and Guard.Next. Make one with NewLine. It
// allocates only while it grows.
type Line[T any] struct {
	spots       []spot[T]
	free        int32 // first of the unused spots, linked by next
	first, last int32
	n, most     int
}

type spot[T any] struct {
	value      T
	prev, next int32
	turn       uint32 // odd while in use; tells tickets of different users apart
}

const noSpot = -1

// Ticket is a spot in a Line. The zero Ticket is none.
type Ticket struct {
	spot int32
	turn uint32
}

// NewLine makes an empty line for at most n, at least 1.
func NewLine[T any](n int) *Line[T] {
	return &Line[T]{free: noSpot, first: noSpot, last: noSpot, most: max(n, 1)}
}

// Full says whether Push would drop the oldest.
func (l *Line[T]) Full() bool { return l.n >= l.most }

// Len is how many stand in line.
func (l *Line[T]) Len() int { return l.n }

// Push puts v at the end. When the line was full, the oldest was dropped for
// it: dropped is true and out is that one, which then must be told (and
// Guard.Quit).
func (l *Line[T]) Push(v T) (t Ticket, out T, dropped bool) {
	if l.Full() {
		out, dropped = l.Oldest()
	}
	i := l.free
	if i == noSpot {
		l.spots = append(l.spots, spot[T]{})
		i = int32(len(l.spots) - 1)
	} else {
		l.free = l.spots[i].next
	}
	s := &l.spots[i]
	s.value, s.prev, s.next = v, l.last, noSpot
	s.turn++
	if l.last == noSpot {
		l.first = i
	} else {
		l.spots[l.last].next = i
	}
	l.last = i
	l.n++
	return Ticket{spot: i, turn: s.turn}, out, dropped
}

// Oldest takes out who came first.
func (l *Line[T]) Oldest() (v T, ok bool) { return l.take(l.first) }

// Newest takes out who came last. After an outage this is the better end:
// those at the other end have lost patience or are about to, and an answer to
// somebody who has left is work for nothing that makes the next one late too.
func (l *Line[T]) Newest() (v T, ok bool) { return l.take(l.last) }

// Last is who came last, and stays in line.
func (l *Line[T]) Last() (v T, ok bool) {
	if l.last == noSpot {
		return v, false
	}
	return l.spots[l.last].value, true
}

// NewestThat takes out who came last of those for whom fits holds.
func (l *Line[T]) NewestThat(fits func(T) bool) (v T, ok bool) {
	for i := l.last; i != noSpot; i = l.spots[i].prev {
		if fits(l.spots[i].value) {
			return l.take(i)
		}
	}
	return v, false
}

// First is who came first, and stays in line.
func (l *Line[T]) First() (v T, ok bool) {
	if l.first == noSpot {
		return v, false
	}
	return l.spots[l.first].value, true
}

// OldestThat takes out who came first of those for whom fits holds.
func (l *Line[T]) OldestThat(fits func(T) bool) (v T, ok bool) {
	for i := l.first; i != noSpot; i = l.spots[i].next {
		if fits(l.spots[i].value) {
			return l.take(i)
		}
	}
	return v, false
}

// Remove takes out the one with ticket t; no when it is not in line any more.
func (l *Line[T]) Remove(t Ticket) bool {
	if t.turn&1 == 0 || int(t.spot) >= len(l.spots) || l.spots[t.spot].turn != t.turn {
		return false
	}
	l.take(t.spot)
	return true
}

func (l *Line[T]) take(i int32) (v T, ok bool) {
	if i == noSpot {
		return v, false
	}
	s := &l.spots[i]
	if s.prev == noSpot {
		l.first = s.next
	} else {
		l.spots[s.prev].next = s.next
	}
	if s.next == noSpot {
		l.last = s.prev
	} else {
		l.spots[s.next].prev = s.prev
	}
	var none T
	v, s.value = s.value, none
	s.turn++
	s.next = l.free
	l.free = i
	l.n--
	return v, true
}
