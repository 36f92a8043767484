package proxy

import (
	"net"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/slots"
)

const (
	// maxAcceptQueue is how many clients may wait for a slot in our own queue, where we choose who
	// is next. Beyond it, accepting pauses.
	maxAcceptQueue = 1024
	// acceptQueueShare limits the queue to one in so many of the client limit, because each queued
	// client has a descriptor.
	acceptQueueShare = 4
	// dropAfter is how long a client waits at least before a full queue drops it for a newer one.
	// It applies if memory is short: clients left in the system's queue are served in its order,
	// not ours.
	dropAfter = time.Second
)

// acceptQueue holds accepted clients that got no slot. The newest is served first: among many that
// arrive at once, it is the most likely to be still connected. It is safe for concurrent use.
type acceptQueue struct {
	most  int
	drops func(acceptedConn) // is called for the oldest client when the queue is full; nil: it is not dropped
	came  chan struct{}      // a client arrived; capacity 1
	left  chan struct{}      // a client left; capacity 1

	mu  sync.Mutex // guards all fields
	all []acceptedConn
}

// acceptedConn is an accepted client without a slot.
type acceptedConn struct {
	nc   net.Conn
	name string      // of the listener
	tls  bool        // it will speak TLS
	cost int64       // of its slot at first
	slot *slots.Slot // once it has one
	came time.Time
}

// newAcceptQueue returns a queue for clients that wait for a slot of t. dropped is called for clients
// that waited longest and have to leave; it must close them.
func newAcceptQueue(t *slots.Table, dropped func(acceptedConn)) *acceptQueue {
	r := &acceptQueue{most: maxAcceptQueue, came: make(chan struct{}, 1), left: make(chan struct{}, 1)}
	if t.BoundsMemory() {
		r.drops = dropped
	} else if t.Most() > 0 {
		r.most = min(maxAcceptQueue, max(1, t.Most()/acceptQueueShare))
	}
	return r
}

// put adds a client. It reports false if the queue is full.
func (r *acceptQueue) put(n acceptedConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) >= r.most && !r.drop() {
		return false
	}
	n.came = time.Now()
	r.all = append(r.all, n)
	poke(r.came)
	return true
}

// drop turns the client away that has waited longest. It is called with mu held.
func (r *acceptQueue) drop() bool {
	if r.drops == nil || time.Since(r.all[0].came) < dropAfter {
		return false
	}
	r.drops(r.all[0])
	r.all = append(r.all[:0], r.all[1:]...)
	return true
}

// newest returns the client that arrived last, without removing it.
func (r *acceptQueue) newest() (acceptedConn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return acceptedConn{}, false
	}
	return r.all[len(r.all)-1], true
}

// waiting returns how many clients wait.
func (r *acceptQueue) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// take removes and returns the client that arrived last.
func (r *acceptQueue) take() (acceptedConn, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.all) == 0 {
		return acceptedConn{}, false
	}
	n := r.all[len(r.all)-1]
	r.all[len(r.all)-1] = acceptedConn{}
	r.all = r.all[:len(r.all)-1]
	poke(r.left)
	return n, true
}

func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
