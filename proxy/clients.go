package proxy

import (
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
)

// clients is the table of client slots. It decides who gets a slot at once, who waits in the
// accept queue, and which client loses its slot to others (evict.go). It is safe for concurrent
// use.
type clients struct {
	slots    *clientSlots
	queue    *acceptQueue
	costs    clientCosts
	evicting eviction
	streams  *streamSlots // of HTTP/2 clients

	connected *connections
	parked    *idlepoller.Poller
	clock     *clock.Clock
	pauses    *atomic.Uint64     // times that accepting paused
	closing   <-chan struct{}    // closed when accepting must end
	start     func(acceptedConn) // serves a client that has a slot
}

// admit serves a client that has just been accepted, or queues it for a slot.
func (t *clients) admit(n acceptedConn) {
	if _, crowded := t.queue.newest(); !crowded && t.slots.take(n.cost) {
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
			t.slots.force(n.cost)
			t.start(n)
			return
		}
	}
}

// seat gives slots to queued clients and evicts idle or stalled clients to make room. When
// accepting ends, it serves all that are left.
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
		if t.slots.take(n.cost) {
			n, _ := t.queue.take() // the client looked at, or a newer one of the same cost
			t.start(n)
			continue
		}
		t.evict(t.queue.waiting(), t.slots.memoryBound(n.cost))
		tick.Reset(evictEvery)
		select {
		case <-t.slots.freed:
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
		t.slots.force(n.cost)
		t.start(n)
	}
}

// awaken waits for the memory that a parked client needs when it becomes active.
func (t *clients) awaken() {
	for !t.slots.tryRecharge(t.costs.parked, t.costs.plain) {
		t.evict(1, true)
		select {
		case <-time.After(evictEvery):
		case <-t.closing:
			t.slots.recharge(t.costs.parked, t.costs.plain)
			return
		}
	}
}
