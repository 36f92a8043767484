package bridge

import (
	"container/list"
	"sync"
	"time"
)

// stuckAfter is how long an upstream may read nothing of a request's body before its connection
// counts as stuck: longer than a round trip.
const stuckAfter = 100 * time.Millisecond

// Uploads are the request bodies of one HTTP/2 connection that wait for the upstream. Bodies that it
// does not read may hold its window of the connection, and then no other body can be sent there. The
// zero value has none. It is safe for concurrent use.
type Uploads struct {
	mu      sync.Mutex // guards waiting
	waiting list.List  // of the time.Time since when a body waits; the longest first
}

// Stuck reports whether a body waits for so long that other requests need another connection.
func (u *Uploads) Stuck() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	longest := u.waiting.Front()
	return longest != nil && time.Since(longest.Value.(time.Time)) >= stuckAfter
}

// write writes a piece of a body to b, from which the connection sends it.
func (u *Uploads) write(b *buffer, piece []byte) (int, error) {
	n, err := b.writeNow(piece)
	if err != nil || n == len(piece) {
		return n, err
	}
	u.mu.Lock()
	waits := u.waiting.PushBack(time.Now())
	u.mu.Unlock()
	m, err := b.Write(piece[n:])
	u.mu.Lock()
	u.waiting.Remove(waits)
	u.mu.Unlock()
	return n + m, err
}
