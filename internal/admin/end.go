package admin

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// noticed is how long a request for /drained waits for the drain to begin: the hooks of a Pod's
// containers start together, but not at the same instant.
const noticed = 8 * time.Second

// End responds to /drained when the process has drained. An application's preStop hook requests
// it, so that the application is not stopped while requests are still on their way to it. Make one
// with NewEnd. Its methods are safe for concurrent use, but Begin and Drained may each be called
// only once.
type End struct {
	begun, drained chan struct{}

	mu     sync.Mutex
	asking map[string]int // waiting requests, by address
	all    int            // their sum
}

// Everyone who can reach the admin listener may request /drained. These limits keep such requests
// from using up its connections, so that probes and the application's hook get one. The containers
// of a Pod use one or two addresses: the Pod's and its node's.
const (
	mostAskingFromOne = 4
	mostAsking        = 32
)

// NewEnd returns the End of a process that serves.
func NewEnd() *End {
	return &End{begun: make(chan struct{}), drained: make(chan struct{}), asking: map[string]int{}}
}

// Begin records that the drain has begun.
func (e *End) Begin() { close(e.begun) }

// Drained records that the drain is over.
func (e *End) Drained() { close(e.drained) }

// ServeHTTP responds with 200 when the drain is over, 409 if none begins soon, and 503 if too many
// requests wait. The request changes nothing.
func (e *End) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, _, _ := net.SplitHostPort(r.RemoteAddr) // "" for a unix socket
	if !e.enter(from) {
		say(w, http.StatusServiceUnavailable, "too many requests already wait for the drain")
		return
	}
	defer e.leave(from)
	c := http.NewResponseController(w)
	// Both fail only on a connection without deadlines, which needs none removed.
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

// enter reports whether another request from that address may wait. If so, call leave after it.
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

// soon reports whether the drain begins within noticed.
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
