package http2

import (
	"container/list"
	"sync"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// ErrNotRead ends a body whose reader was the slowest when the memory for unread bytes ran out.
var ErrNotRead error = http1.RefusalUnreadBody.Err()

// Backlog bounds the bytes that HTTP/2 streams hold because their readers are slow. Strangers share
// a connection, and its window would be held by the slowest of them. So that window is without
// effect, and the windows of streams add up. If those of slow readers need too much memory, the
// stream whose reader has taken nothing for the longest time ends. A nil Backlog bounds nothing.
// It is safe for concurrent use.
type Backlog struct {
	most  int64 // bytes
	ended atomic.Uint64

	mu   sync.Mutex // guards all fields below
	held int64      // bytes
	slow list.List  // of *slowBody; first the one that has waited longest for its reader
}

// slowBody is a body that waits for its reader.
type slowBody struct {
	held int64 // bytes, at most
	end  func() bool
}

// NewBacklog returns a Backlog of at most most bytes; 0 means any number.
func NewBacklog(most int64) *Backlog {
	if most <= 0 {
		return nil
	}
	return &Backlog{most: most}
}

// Ended returns how many streams were ended.
func (l *Backlog) Ended() uint64 {
	if l == nil {
		return 0
	}
	return l.ended.Load()
}

// Wait counts a body that waits for its reader and holds up to held bytes, until stop is called.
// If that is too much, it ends the bodies that have waited longest by their end functions. The new
// body may be one of them. end reports false if the body does not wait any more; it then stays as it
// is. It must neither block nor call methods of the Backlog, and is not called after stop.
func (l *Backlog) Wait(held int64, end func() bool) (stop func()) {
	if l == nil {
		return func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held += held
	own := l.slow.PushBack(&slowBody{held, end})
	for longest := l.slow.Front(); longest != nil && l.held > l.most; {
		next := longest.Next()
		if longest.Value.(*slowBody).end() {
			l.ended.Add(1)
			l.remove(longest)
		}
		longest = next
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.remove(own)
	}
}

// remove stops counting a body, once. It is called with mu held.
func (l *Backlog) remove(e *list.Element) {
	b := e.Value.(*slowBody)
	l.held -= b.held
	b.held = 0
	l.slow.Remove(e)
}

// ReadAhead describes what a peer may send before it is read.
type ReadAhead struct {
	Window  int      // of one stream, in bytes
	Backlog *Backlog // nil: none; reads of a body that it gave up return ErrNotRead
}
