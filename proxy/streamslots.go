package proxy

import (
	"slices"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
)

const (
	// slotWait is how long a stream waits for its slot before it is rejected.
	slotWait = time.Second
	// preemptAfter is how long a connection without any slot waits before it takes one of the
	// connection that has the most.
	preemptAfter = 50 * time.Millisecond
	// handlersPerSlot bounds the streams that wait or are being rejected, in multiples of the
	// slots. Beyond it, a stream is reset at once.
	handlersPerSlot = 4
	leastHandlers   = 128
	// ownHandlers is how many streams a connection may always begin, so that a connection with few
	// streams is not reset because others have many.
	ownHandlers = 2
	// newcomersShare reserves slots, one in so many, for connections that have none.
	newcomersShare = 8
)

// streamSlots bounds the requests that HTTP/2 clients have in flight. A connection may have as
// many slots as are left free: the first that takes all it can get has half, the next a quarter.
// If all are taken, a connection without a slot gets one of the connection that has the most. It
// is safe for concurrent use.
type streamSlots struct {
	most  int // 0: any number
	clock *clock.Clock

	slotWait, preemptAfter time.Duration // the constants; only tests change them

	mu       sync.Mutex // guards all fields below, and http2Conn.share
	used     int
	handlers int // streams that hold a slot, wait for one, or are being rejected
	waiting  []*slotWaiter
	holders  []*http2Conn // connections with slots; each knows its place
}

// streamShare is an HTTP/2 connection's share of the server's slots, guarded by their lock.
type streamShare struct {
	handlers int
	slots    []*streamSlot // oldest first
	place    int           // in holders, if there are slots
}

// streamSlot is a slot that a stream holds. It belongs to a conn, whose requests hold it one after
// another. A stream that was ended, by its client, by preempt or by the Backlog, holds it until its
// worker has returned: the slot stands for the memory and the upstream connection of the request, and
// only then are these free. Its fields are guarded by the lock of the slots.
type streamSlot struct {
	h      *http2Conn
	stream slotHolder
	since  clock.Instant
	taken  bool // preempted: the stream is ending
}

// slotHolder is a stream that has a slot or waits for one.
type slotHolder interface {
	// Done returns a channel that is closed when the client has left.
	Done() <-chan struct{}
	// Reset ends the stream. It does not wait.
	Reset(code http2.Code)
}

// slotWaiter is a stream that waits for a slot.
type slotWaiter struct {
	slot    *streamSlot
	ready   chan struct{} // closed when it has its slot, or is rejected
	refused bool          // set before ready is closed
}

// share returns that of the connection of the stream.
func (w *slotWaiter) share() *streamShare { return &w.slot.h.share }

func newStreamSlots(most int, k *clock.Clock) *streamSlots {
	return &streamSlots{most: most, clock: k, slotWait: slotWait, preemptAfter: preemptAfter}
}

// ofOne returns how many streams a client may begin on one connection, of the n that are allowed: as
// many as may have a slot if no others have one. More would only wait.
func (l *streamSlots) ofOne(n int) int {
	if l.most <= 0 {
		return n
	}
	return min(n, max(1, (l.most-l.most/newcomersShare+1)/2))
}

// beginStream counts a stream that has begun. It reports false if there are so many that the
// stream must be reset without a response.
func (l *streamSlots) beginStream(h *http2Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	crowded := l.most > 0 && l.handlers >= max(handlersPerSlot*l.most, leastHandlers)
	if crowded && h.share.handlers >= ownHandlers && !l.dismiss(h) {
		return false
	}
	l.handlers++
	h.share.handlers++
	return true
}

// dismiss rejects a waiting stream of the connection with the most streams, in favour of one of h,
// unless h itself has as many. It is called with mu held.
func (l *streamSlots) dismiss(h *http2Conn) bool {
	var out *slotWaiter
	for _, w := range l.waiting {
		if n := w.share().handlers; n > h.share.handlers+1 && (out == nil || n > out.share().handlers) {
			out = w
		}
	}
	if out == nil {
		return false
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(w *slotWaiter) bool { return w == out })
	out.refused = true
	close(out.ready)
	return true
}

// endStream undoes beginStream.
func (l *streamSlots) endStream(h *http2Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handlers--
	h.share.handlers--
}

// take waits for a slot for a stream. It reports false if there was none in time or if the client left.
func (l *streamSlots) take(slot *streamSlot) bool {
	l.mu.Lock()
	if l.free(slot.h) {
		l.occupy(slot)
		l.mu.Unlock()
		return true
	}
	w := &slotWaiter{slot: slot, ready: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	l.mu.Unlock()
	gone := slot.stream.Done()
	got := w.wait(gone, l.preemptAfter) || l.preempt(slot.h) && w.wait(gone, l.slotWait-l.preemptAfter) || l.abandon(w)
	return got && !w.refused
}

// wait reports whether the slot came in time.
func (w *slotWaiter) wait(gone <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.ready:
		return true
	case <-timer.C:
	case <-gone:
	}
	return false
}

// abandon removes w from the waiting streams. It reports true if w got its slot before that.
func (l *streamSlots) abandon(w *slotWaiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting, w)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	return i < 0
}

// preempt ends the oldest stream of the connection that has the most slots, if h has none, and
// that connection has at least two and keeps them long. It always returns true: the wait
// continues.
func (l *streamSlots) preempt(h *http2Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if victim := l.victim(h); victim != nil {
		victim.stream.Reset(http2.Cancel) // with mu, since the slot may serve another stream later
	}
	return true
}

// victim is called with mu held.
func (l *streamSlots) victim(h *http2Conn) *streamSlot {
	if len(h.share.slots) > 0 || l.most <= 0 {
		return nil
	}
	var greedy *http2Conn
	now := l.clock.Now()
	for _, o := range l.holders {
		if now.Sub(o.share.slots[0].since) < l.preemptAfter {
			continue // it finishes quickly
		}
		if greedy == nil || len(o.share.slots) > len(greedy.share.slots) {
			greedy = o
		}
	}
	if greedy == nil || len(greedy.share.slots) < 2 {
		return nil
	}
	for _, slot := range greedy.share.slots {
		if !slot.taken {
			slot.taken = true
			return slot
		}
	}
	return nil
}

// free reports whether a stream of h may have a slot. It is called with mu held.
func (l *streamSlots) free(h *http2Conn) bool {
	left, has := l.most-l.used, len(h.share.slots)
	return l.most <= 0 || left > 0 && (has == 0 || has < left-l.most/newcomersShare)
}

// occupy gives a slot to its stream. It is called with mu held.
func (l *streamSlots) occupy(slot *streamSlot) {
	l.used++
	slot.since, slot.taken = l.clock.Now(), false
	share := &slot.h.share
	if share.slots = append(share.slots, slot); len(share.slots) == 1 {
		share.place = len(l.holders)
		l.holders = append(l.holders, slot.h)
	}
}

// give returns a slot, and passes it to a waiting stream of the connection that has the fewest.
func (l *streamSlots) give(slot *streamSlot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used--
	share := &slot.h.share
	share.slots = slices.DeleteFunc(share.slots, func(s *streamSlot) bool { return s == slot })
	if len(share.slots) == 0 {
		last := len(l.holders) - 1
		l.holders[share.place] = l.holders[last]
		l.holders[share.place].share.place = share.place
		l.holders[last] = nil
		l.holders = l.holders[:last]
	}
	var next *slotWaiter
	for _, w := range l.waiting {
		if l.free(w.slot.h) && (next == nil || len(w.share().slots) < len(next.share().slots)) {
			next = w
		}
	}
	if next != nil {
		l.occupy(next.slot)
		l.waiting = slices.DeleteFunc(l.waiting, func(w *slotWaiter) bool { return w == next })
		close(next.ready)
	}
}

// full reports whether no slot is left.
func (l *streamSlots) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most > 0 && l.used >= l.most
}

// streamSlot takes a slot for a stream. If none is left, it ends streams whose clients read nothing.
func (t *clients) streamSlot(slot *streamSlot) bool {
	if t.streams.full() {
		t.evict((*victim).isStream)
	}
	return t.streams.take(slot)
}
