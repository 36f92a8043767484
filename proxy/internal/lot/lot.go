// Package lot waits for many idle sockets in one goroutine.
//
// A goroutine that does nothing but wait for a caller's next request keeps a
// stack and everything that it will need when the request comes. A guest of a
// Lot keeps what it keeps itself, and some hundred bytes here. The zero Lot is
// ready; the first Park opens it, and Close ends it.
//
// What is promised: a guest leaves once, for one reason. It never sleeps through
// bytes, an end or an error of its socket, whether that came before, while or
// after it was parked. The socket stays its owner's, who must not close it while
// the guest is parked, unless Close follows.
//
// Where the system has no epoll, Park refuses, and its caller waits as before.
package lot

import (
	"container/heap"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// Guest is what is parked.
type Guest interface {
	// Leave says that the guest has left. It is called once for each Park that
	// gave no error, perhaps before that returns, by the Lot's goroutine or by
	// the caller of Clear or Close. It must not wait, nor call the Lot.
	Leave(why Why)
}

// Why says for what a guest left.
type Why uint8

// The reasons.
const (
	Readable Why = iota // there are bytes, or an end, or an error
	Due                 // its time is over
	Cleared             // Clear or Close was called
	Evicted             // Evict was called
)

// Lot is where guests wait. Safe for concurrent use.
type Lot struct {
	mu     sync.Mutex // guards all below but poll, which has its own rules
	places map[uint64]*place
	due    dueHeap
	last   uint64        // number given last; none is given twice
	alarm  time.Time     // when the goroutine wakes by itself; zero: never
	poll   poller        // set by the first Park, before the goroutine starts
	ended  chan struct{} // closed when the goroutine has ended; nil: it never began
	broken error         // why there is no poller
	closed bool
}

// place is one guest's. Its number, not the descriptor's, is what the kernel
// tells us, so that old news of a descriptor used again finds nobody.
type place struct {
	number uint64
	guest  Guest
	socket syscall.RawConn
	until  time.Time
	index  int // in the heap
}

// Park takes g until its socket is readable, until the time given, or until
// Clear. With an error, which is net.ErrClosed after Close, g has not been taken.
func (l *Lot) Park(socket syscall.RawConn, until time.Time, g Guest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.open(); err != nil {
		return err
	}
	l.last++
	p := &place{number: l.last, guest: g, socket: socket, until: until}
	if err := l.poll.add(socket, p.number); err != nil {
		return err
	}
	l.places[p.number] = p
	heap.Push(&l.due, p)
	l.setAlarm()
	return nil
}

// open makes the poller, once. Called with mu held.
func (l *Lot) open() error {
	switch {
	case l.closed:
		return net.ErrClosed
	case l.broken != nil:
		return l.broken
	case l.ended != nil:
		return nil
	}
	if l.broken = l.poll.open(); l.broken != nil {
		return l.broken
	}
	l.places, l.ended = map[uint64]*place{}, make(chan struct{})
	go l.run()
	return nil
}

// run is the Lot's goroutine. Close ends it.
func (l *Lot) run() {
	defer close(l.ended)
	for {
		numbers, err := l.poll.wait()
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.expire()
		case err != nil:
			l.giveUp(err)
			return
		}
		for _, n := range numbers {
			if p := l.take(n); p != nil {
				p.guest.Leave(Readable)
			}
		}
	}
}

// giveUp leaves nobody behind who would not be woken any more. After Close
// nobody is there.
func (l *Lot) giveUp(why error) {
	l.mu.Lock()
	l.broken = why
	l.mu.Unlock()
	l.Clear()
}

// take takes a guest out; nil: it has left.
func (l *Lot) take(number uint64) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[number]
	if p != nil {
		l.remove(p)
	}
	return p
}

// remove forgets a guest. Called with mu held.
func (l *Lot) remove(p *place) {
	l.poll.remove(p.socket)
	delete(l.places, p.number)
	heap.Remove(&l.due, p.index)
}

// expire lets those go whose time is over.
func (l *Lot) expire() {
	for _, p := range l.overdue(time.Now()) {
		p.guest.Leave(Due)
	}
}

func (l *Lot) overdue(now time.Time) (all []*place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.due) > 0 && !now.Before(l.due[0].until) {
		p := l.due[0]
		l.remove(p)
		all = append(all, p)
	}
	l.alarm = time.Time{}
	l.setAlarm()
	return all
}

// setAlarm makes the goroutine wake for the guest that is due next. An alarm
// that comes too early, since that guest has left, is left as it is. Called
// with mu held.
func (l *Lot) setAlarm() {
	if len(l.due) == 0 {
		if l.alarm.IsZero() {
			l.poll.setAlarm(time.Time{}) // the one that went off is taken away
		}
		return
	}
	if next := l.due[0].until; l.alarm.IsZero() || next.Before(l.alarm) {
		l.alarm = next
		l.poll.setAlarm(next)
	}
}

// Evict makes the guest leave that is due next, if ok says so, and reports whether one did.
func (l *Lot) Evict(ok func(Guest) bool) bool {
	p := l.takeNext(ok)
	if p == nil {
		return false
	}
	p.guest.Leave(Evicted)
	return true
}

func (l *Lot) takeNext(ok func(Guest) bool) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.due) == 0 || !ok(l.due[0].guest) {
		return nil
	}
	p := l.due[0]
	l.remove(p)
	return p
}

// Clear makes every guest leave that is here now.
func (l *Lot) Clear() {
	for _, p := range l.takeAll() {
		p.guest.Leave(Cleared)
	}
}

func (l *Lot) takeAll() []*place {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*place, 0, len(l.places))
	for len(l.due) > 0 {
		p := l.due[len(l.due)-1]
		l.remove(p)
		all = append(all, p)
	}
	return all
}

// Close makes every guest leave, takes no more, and waits for the Lot's
// goroutine to end. It may be called again, and by several at once.
func (l *Lot) Close() {
	l.mu.Lock()
	first := !l.closed && l.ended != nil
	l.closed = true
	ended := l.ended
	l.mu.Unlock()
	l.Clear()
	if first {
		l.poll.close()
	}
	if ended != nil {
		<-ended
	}
}

// Guests is how many are parked now.
func (l *Lot) Guests() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.places)
}

// dueHeap has the guest first that is due first.
type dueHeap []*place

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].until.Before(h[j].until) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is heap.Interface's.
func (h *dueHeap) Push(x any) {
	p := x.(*place)
	p.index = len(*h)
	*h = append(*h, p)
}

// Pop is heap.Interface's.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return p
}
