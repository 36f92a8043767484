// Package idlepoller waits for many idle sockets in one goroutine.
//
// A goroutine that only waits for a client's next request keeps a stack and everything it
// needs for that request. A Waiter in a Poller only keeps its own state, and some hundred
// bytes here. The zero Poller is ready to use; the first Add opens it, and Close ends it.
//
// Each waiter is woken once, for one reason. It never misses bytes, an end or an error of
// its socket, whether that came before, during or after Add. The socket still belongs to
// its owner, who must not close it while the waiter is in the Poller, unless Close follows.
//
// On systems without epoll, Add fails, and the caller waits as before.
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

// Waiter waits in a Poller.
type Waiter interface {
	// Wake is called when the waiter has left the Poller, once for each Add without error,
	// possibly before that returns. It is called by the Poller's goroutine or by the caller
	// of Evict, Clear or Close. It must not block, nor call the Poller.
	Wake(reason Reason)
}

// Reason is why a waiter left the Poller.
type Reason uint8

// The reasons.
const (
	Readable       Reason = iota // there are bytes, an end of stream, or an error
	DeadlinePassed               // its deadline has passed
	Cleared                      // Clear or Close was called
	Evicted                      // Evict was called
)

// Poller holds waiters. It is safe for concurrent use.
type Poller struct {
	mu         sync.Mutex // guards all below but poll, which has its own rules
	entries    map[uint64]*entry
	deadlines  deadlineHeap
	lastNumber uint64        // last number used; numbers are not reused
	wakeAt     time.Time     // when the goroutine wakes by itself; zero: never
	epoll      epoll         // set by the first Park, before the goroutine starts
	done       chan struct{} // closed when the goroutine has ended; nil: it was never started
	pollErr    error         // why polling is impossible
	closed     bool
}

// entry is the entry of one waiter. The kernel reports its number, not the descriptor, so
// that an old event of a reused descriptor finds no entry.
type entry struct {
	number   uint64
	waiter   Waiter
	socket   syscall.RawConn
	deadline time.Time
	index    int // in the heap
}

// Add waits for g until its socket is readable, until the deadline, or until Evict or
// Clear. If it returns an error, net.ErrClosed after Close, it has not added g.
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

// open opens the epoll instance, once. It requires mu.
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

// run is the Poller's goroutine. Close ends it.
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

// fail wakes all waiters, since no event will be seen any more. After Close there are none.
func (l *Poller) fail(reason error) {
	l.mu.Lock()
	l.pollErr = reason
	l.mu.Unlock()
	l.Clear()
}

// take removes an entry and returns it, or nil if it has left.
func (l *Poller) take(number uint64) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.entries[number]
	if p != nil {
		l.remove(p)
	}
	return p
}

// remove removes an entry. It requires mu.
func (l *Poller) remove(p *entry) {
	l.epoll.remove(p.socket)
	delete(l.entries, p.number)
	heap.Remove(&l.deadlines, p.index)
}

// expire wakes the waiters whose deadline has passed.
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

// setWakeTime makes the goroutine wake at the next deadline. A wake time that is too early,
// because its waiter has left, is not changed. It requires mu.
func (l *Poller) setWakeTime() {
	if len(l.deadlines) == 0 {
		if l.wakeAt.IsZero() {
			l.epoll.setWakeTime(time.Time{}) // clear the expired wake time
		}
		return
	}
	if next := l.deadlines[0].deadline; l.wakeAt.IsZero() || next.Before(l.wakeAt) {
		l.wakeAt = next
		l.epoll.setWakeTime(next)
	}
}

// Evict removes the waiter with the next deadline if ok returns true for it, and reports
// whether it did. ok is called with a lock held.
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

// Clear wakes all current waiters.
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

// Close wakes all waiters, refuses new ones, and waits for the Poller's goroutine to end.
// It may be called several times and concurrently.
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

// Len returns the number of waiters.
func (l *Poller) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// deadlineHeap is a heap of entries by deadline.
type deadlineHeap []*entry

func (d deadlineHeap) Len() int           { return len(d) }
func (d deadlineHeap) Less(i, j int) bool { return d[i].deadline.Before(d[j].deadline) }
func (d deadlineHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

// Push implements heap.Interface.
func (d *deadlineHeap) Push(x any) {
	p := x.(*entry)
	p.index = len(*d)
	*d = append(*d, p)
}

// Pop implements heap.Interface.
func (d *deadlineHeap) Pop() any {
	last := len(*d) - 1
	p := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return p
}
