package admin

import (
	"context"
	"net/http"
	"time"
)

// noticed is how long a question for the end waits for it to begin: the hooks of
// a Pod's containers start at the same time, but not in the same moment.
const noticed = 8 * time.Second

// End tells those who ask for /drained when the process has drained. An
// application's preStop hook asks, so that it is not told to end while requests
// are on their way to it. Make one with NewEnd. Its methods are safe for
// concurrent use, but Begin and Drained may be called once each.
type End struct{ begun, drained chan struct{} }

// NewEnd is the end of a process that serves.
func NewEnd() *End { return &End{make(chan struct{}), make(chan struct{})} }

// Begin says that the drain has begun.
func (e *End) Begin() { close(e.begun) }

// Drained says that it is over.
func (e *End) Drained() { close(e.drained) }

// ServeHTTP answers 200 when the drain is over, and 409 if none begins soon.
// Whoever may ask changes nothing by it.
func (e *End) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
