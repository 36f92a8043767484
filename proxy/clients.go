package proxy

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// clients decides which clients have a slot: who gets one at once, who waits in the accept queue, who
// loses it to others (evict.go), and whose body is accepted (uploads.go). It is safe for concurrent use.
type clients struct {
	slots    *slots.Table
	queue    *acceptQueue
	costs    clientCosts
	evicting eviction
	uploads  uploadLimit
	streams  *streamSlots // of HTTP/2 clients

	connected *connections
	parked    *idlepoller.Poller
	clock     *clock.Clock
	pauses    *atomic.Uint64     // times that accepting paused
	closing   <-chan struct{}    // closed when accepting must end
	start     func(acceptedConn) // serves a client that has a slot
}

// How long a client waits at most for the memory that it takes to serve it.
const (
	roomWithin = time.Second
	// http2RoomWithin is the same for a new HTTP/2 connection. It takes as much as several clients
	// over HTTP/1.1, and as a newcomer it keeps others out meanwhile. Its client can send all of its
	// requests again on another connection.
	http2RoomWithin = 100 * time.Millisecond
	// mostRoomWait is how long it waits at most before it looks again. Many clients that look often would
	// take the cores from those that are served.
	mostRoomWait = 80 * time.Millisecond
)

// admit serves a client that has just been accepted, or queues it for a slot.
func (t *clients) admit(n acceptedConn) {
	if _, crowded := t.queue.newest(); !crowded && t.seated(&n) {
		t.start(n)
		return
	}
	if t.queue.put(n) {
		return
	}
	t.pauses.Add(1)
	for !t.queue.put(n) {
		select {
		case <-t.queue.left:
		case <-time.After(acceptPause):
		case <-t.closing:
			n.slot = t.slots.Force(n.cost)
			t.start(n)
			return
		}
	}
}

// seated reports whether n got a slot.
func (t *clients) seated(n *acceptedConn) bool {
	n.slot = t.slots.Take(n.cost)
	return n.slot != nil
}

// seat gives slots to queued clients and evicts others to make room. When accepting ends, it serves
// all that are left.
func (t *clients) seat() {
	tick := time.NewTimer(evictEvery)
	defer tick.Stop()
	for {
		n, waits := t.queue.newest()
		if !waits {
			select {
			case <-t.queue.came:
				continue
			case <-t.closing:
				t.seatAll()
				return
			}
		}
		if slot := t.slots.TakeAfter(time.Since(n.came), n.cost); slot != nil {
			n, _ := t.queue.take() // the client looked at, or a newer one of the same cost
			n.slot = slot
			t.start(n)
			continue
		}
		if t.slots.ShortOfMemory(n.cost) {
			if t.evict((*victim).isNewcomer) || t.slots.Reject(slots.Connection) {
				continue
			}
		} else {
			t.evictMany(t.queue.waiting())
		}
		tick.Reset(evictEvery)
		select {
		case <-t.slots.Freed():
		case <-tick.C:
		case <-t.closing:
			t.seatAll()
			return
		}
	}
}

// seatAll serves all queued clients, whether or not slots are free.
func (t *clients) seatAll() {
	for n, waits := t.queue.take(); waits; n, waits = t.queue.take() {
		n.slot = t.slots.Force(n.cost)
		t.start(n)
	}
}

// makeRoom evicts others until there is room for a client to be charged cost, and waits if nobody can be
// evicted yet. It reports false if there is none in time, or if newcomers need what it holds. When accepting
// ends, there always is.
func (t *clients) makeRoom(slot *slots.Slot, cost int64, rank slots.Rank, within time.Duration) bool {
	if t.slots.TryCharge(slot, cost, rank) {
		return true
	}
	w := t.slots.Wait(slot, cost, rank, t.clock.Elapsed())
	late := time.NewTimer(within)
	defer late.Stop()
	for wait := evictEvery; ; wait = min(2*wait, mostRoomWait) {
		for !w.IsOver() && t.evictForMemory() {
		}
		select {
		case <-w.Over():
			return w.Charged()
		case <-late.C:
			return t.slots.GiveUp(w)
		case <-time.After(wait):
		case <-t.closing:
			if !t.slots.GiveUp(w) {
				t.slots.Charge(slot, cost)
			}
			return true
		}
	}
}
