package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// noticed is how long a question for the end waits for it to begin: the hooks of
// a Pod's containers start at the same time, but not in the same moment.
const noticed = 8 * time.Second

// End tells those who ask for /drained when the process has drained. An
// application's preStop hook asks, so that it is not told to end while requests
// are on their way to it. Make one with NewEnd. Its methods are safe for
// concurrent use, but Begin and Drained may be called once each.
type End struct {
	begun, drained chan struct{}

	mu     sync.Mutex
	asking map[string]int // requests that wait, by address
	all    int            // their sum
}

// Whoever may reach the admin listener may ask. These bounds keep them from filling its connections, so
// that probes and the hook of the application find room. The containers of a Pod ask from one or two
// addresses, those of the Pod and of its node.
const (
	mostAskingFromOne = 4
	mostAsking        = 32
)

// NewEnd is the end of a process that serves.
func NewEnd() *End {
	return &End{begun: make(chan struct{}), drained: make(chan struct{}), asking: map[string]int{}}
}

// Begin says that the drain has begun.
func (e *End) Begin() { close(e.begun) }

// Drained says that it is over.
func (e *End) Drained() { close(e.drained) }

// ServeHTTP answers 200 when the drain is over, 409 if none begins soon, and 503 if too many ask.
// Whoever may ask changes nothing by it.
func (e *End) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr) // "" for a unix socket
	if !e.enter(from) {
		say(w, http.StatusServiceUnavailable, "too many ask")
		return
	}
	defer e.leave(from)
	c := http.NewResponseController(w)
	// Both fail on a connection without deadlines only: then there is nothing to lift.
	_, _ = c.SetReadDeadline(time.Time{}), c.SetWriteDeadline(time.Time{})
	if !e.soon(r.Context()) {
		say(w, http.StatusConflict, "not draining")
		return
	}
	select {
	case <-e.drained:
		say(w, http.StatusOK, "drained")
	case <-r.Context().Done():
	}
}

// enter reports whether one more from that address may wait. Call leave if so.
func (e *End) enter(from string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.asking[from] >= mostAskingFromOne || e.all >= mostAsking {
		return false
	}
	e.asking[from]++
	e.all++
	return true
}

func (e *End) leave(from string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all--
	if e.asking[from]--; e.asking[from] == 0 {
		delete(e.asking, from)
	}
}

// soon reports whether the drain begins in time.
func (e *End) soon(asking context.Context) bool {
	late := time.NewTimer(noticed)
	defer late.Stop()
	select {
	case <-e.begun:
		return true
	case <-late.C:
	case <-asking.Done():
	}
	return false
}
