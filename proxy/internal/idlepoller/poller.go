// Package idlepoller waits for many idle sockets in one goroutine.
//
// A goroutine that does nothing but wait for a client's next request keeps a
// stack and everything that it will need when the request comes. A guest of a
// Lot keeps what it keeps itself, and some hundred bytes here. The zero Lot is
// ready; the first Park opens it, and Close ends it.
//
// What is promised: a guest leaves once, for one reason. It never sleeps through
// bytes, an end or an error of its socket, whether that came before, while or
// after it was parked. The socket stays its owner's, who must not close it while
// the guest is parked, unless Close follows.
//
// Where the system has no epoll, Park refuses, and its client waits as before.
package idlepoller

import (
	"container/heap"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Waiter is what is parked.
type Waiter interface {
	// Wake says that the guest has left. It is called once for each Park that
	// gave no error, perhaps before that returns, by the Lot's goroutine or by
	// the caller of Clear or Close. It must not wait, nor call the Lot.
	Wake(reason Reason)
}

// Reason says for what a guest left.
type Reason uint8

// The reasons.
const (
	Readable       Reason = iota // there are bytes, or an end, or an error
	DeadlinePassed               // its time is over
	Cleared                      // Clear or Close was called
	Evicted                      // Evict was called
)

// Poller is where guests wait. Safe for concurrent use.
type Poller struct {
	mu         sync.Mutex // guards all below but poll, which has its own rules
	entries    map[uint64]*entry
	deadlines  deadlineHeap
	lastNumber uint64        // number given last; none is given twice
	wakeAt     time.Time     // when the goroutine wakes by itself; zero: never
	epoll      epoll         // set by the first Park, before the goroutine starts
	done       chan struct{} // closed when the goroutine has ended; nil: it never began
	pollErr    error         // why there is no poller
	closed     bool
}

// entry is one guest's. Its number, not the descriptor's, is what the kernel
// tells us, so that old news of a descriptor used again finds nobody.
type entry struct {
	number   uint64
	waiter   Waiter
	socket   syscall.RawConn
	deadline time.Time
	index    int // in the heap
}

// Add takes g until its socket is readable, until the time given, or until
// Clear. With an error, which is net.ErrClosed after Close, g has not been taken.
func (l *Poller) Add(socket syscall.RawConn, until time.Time, g Waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return err
	}
	l.lastNumber++
	p := &entry{number: l.lastNumber, waiter: g, socket: socket, deadline: until}
	if err := l.epoll.add(socket, p.number); err != nil {
		return err
	}
	l.entries[p.number] = p
	heap.Push(&l.deadlines, p)
	l.setWakeTime()
	return nil
}

// open makes the poller, once. Called with mu held.
func (l *Poller) open() error {
	switch {
	case l.closed:
		return net.ErrClosed
	case l.pollErr != nil:
		return l.pollErr
	case l.done != nil:
		return nil
	}
	if l.pollErr = l.epoll.open(); l.pollErr != nil {
		return l.pollErr
	}
	l.entries, l.done = map[uint64]*entry{}, make(chan struct{})
	go l.run()
	return nil
}

// run is the Lot's goroutine. Close ends it.
func (l *Poller) run() {
	defer close(l.done)
	for {
		numbers, err := l.epoll.wait()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.expire()
		case err != nil:
			l.fail(err)
			return
		}
		for _, n := range numbers {
			if p := l.take(n); p != nil {
				p.waiter.Wake(Readable)
			}
		}
	}
}

// fail leaves nobody behind who would not be woken any more. After Close
// nobody is there.
func (l *Poller) fail(reason error) {
	l.mu.Lock()
	l.pollErr = reason
	l.mu.Unlock()
	l.Clear()
}

// take takes a guest out; nil: it has left.
func (l *Poller) take(number uint64) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.entries[number]
	if p != nil {
		l.remove(p)
	}
	return p
}

// remove forgets a guest. Called with mu held.
func (l *Poller) remove(p *entry) {
	l.epoll.remove(p.socket)
	delete(l.entries, p.number)
	heap.Remove(&l.deadlines, p.index)
}

// expire lets those go whose time is over.
func (l *Poller) expire() {
	for _, p := range l.overdue(time.Now()) {
		p.waiter.Wake(DeadlinePassed)
	}
}

func (l *Poller) overdue(now time.Time) (all []*entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.deadlines) > 0 && !now.Before(l.deadlines[0].deadline) {
		p := l.deadlines[0]
		l.remove(p)
		all = append(all, p)
	}
	l.wakeAt = time.Time{}
	l.setWakeTime()
	return all
}

// setWakeTime makes the goroutine wake for the guest that is due next. An alarm
// that comes too early, since that guest has left, is left as it is. Called
// with mu held.
func (l *Poller) setWakeTime() {
	if len(l.deadlines) == 0 {
		if l.wakeAt.IsZero() {
			l.epoll.setWakeTime(time.Time{}) // the one that went off is taken away
		}
		return
	}
	if next := l.deadlines[0].deadline; l.wakeAt.IsZero() || next.Before(l.wakeAt) {
		l.wakeAt = next
		l.epoll.setWakeTime(next)
	}
}

// Evict makes the guest leave that is due next, if ok says so, and reports whether one did.
func (l *Poller) Evict(ok func(Waiter) bool) bool {
	p := l.takeNext(ok)
	if p == nil {
		return false
	}
	p.waiter.Wake(Evicted)
	return true
}

func (l *Poller) takeNext(ok func(Waiter) bool) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.deadlines) == 0 || !ok(l.deadlines[0].waiter) {
		return nil
	}
	p := l.deadlines[0]
	l.remove(p)
	return p
}

// Clear makes every guest leave that is here now.
func (l *Poller) Clear() {
	for _, p := range l.takeAll() {
		p.waiter.Wake(Cleared)
	}
}

func (l *Poller) takeAll() []*entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*entry, 0, len(l.entries))
	for len(l.deadlines) > 0 {
		p := l.deadlines[len(l.deadlines)-1]
		l.remove(p)
		all = append(all, p)
	}
	return all
}

// Close makes every guest leave, takes no more, and waits for the Lot's
// goroutine to end. It may be called again, and by several at once.
func (l *Poller) Close() {
	l.mu.Lock()
	first := !l.closed && l.done != nil
	l.closed = true
	ended := l.done
	l.mu.Unlock()
	l.Clear()
	if first {
		l.epoll.close()
	}
	if ended != nil {
		<-ended
	}
}

// Len is how many are parked now.
func (l *Poller) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// deadlineHeap has the guest first that is due first.
type deadlineHeap []*entry

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *deadlineHeap) Push(x any) {
	p := x.(*entry)
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop is heap.Interface's.
func (h *deadlineHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
