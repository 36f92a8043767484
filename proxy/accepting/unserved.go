package accepting

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// Unserved is the set of an http.Server's connections that have had no response yet. Once
// Server.Shutdown has begun, net/http drops a request that it reads, also the first one of a client
// that connected before. So call Finish, wait until Server.Serve has returned, call Wait, and only
// then Shutdown. The zero value is empty. It is safe for concurrent use.
type Unserved struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]struct{}
}

// Note is for http.Server.ConnState.
func (u *Unserved) Note(nc net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch state {
	case http.StateNew:
		if u.open == nil {
			u.open = map[net.Conn]struct{}{}
		}
		u.open[nc] = struct{}{}
	case http.StateIdle, http.StateClosed, http.StateHijacked:
		delete(u.open, nc)
	}
}

// Wait returns when every connection has had a response or has ended, or when ctx ends.
func (u *Unserved) Wait(ctx context.Context) {
	const poll = 5 * time.Millisecond
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !u.empty() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (u *Unserved) empty() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.open) == 0
}
