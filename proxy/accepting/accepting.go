// Package accepting ends a listening socket without a reset for the clients in its accept queue.
//
// The system completes a client's connection before the process accepts it. If the socket closes in
// between, the client gets a reset, although its connection succeeded and its request may be sent.
// Wrap a listener, call Finish instead of Close, and call Accept until it returns net.ErrClosed.
package accepting

import (
	"errors"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Listener is a listener that can finish. Only one goroutine may call Accept. The other methods are
// safe for concurrent use.
type Listener struct {
	net.Listener
	finishing atomic.Bool
	late      int // clients that Accept returned after Finish
}

// Wrap returns a Listener for l, and owns l from now on.
func Wrap(l net.Listener) *Listener { return &Listener{Listener: l} }

const (
	// longestQueue bounds how many clients are accepted after Finish, so that clients that keep
	// arriving cannot delay the end for ever. The clients that were in the queue come first. Queues
	// are shorter: net.core.somaxconn is 4096 by default, and 16 bits until Linux 4.1.
	longestQueue = 1 << 16
	// lookAgain is how long Accept waits for a client that was seen in the queue. It waits in vain
	// only if another process, which shares the socket, has accepted it.
	lookAgain = 100 * time.Millisecond
)

// withDeadline is a listener whose Accept can be interrupted.
type withDeadline interface{ SetDeadline(time.Time) error }

// Finish makes Accept return the clients that are in the accept queue, then close the listener and
// return net.ErrClosed. It does not block. A listener whose queue cannot be inspected is closed at
// once; those of package net on Unix can be.
func (l *Listener) Finish() {
	l.finishing.Store(true)
	if d, ok := l.Listener.(withDeadline); ok && inspectable(l.Listener) {
		_ = d.SetDeadline(time.Unix(1, 0)) // in the past: a waiting Accept returns
		return
	}
	_ = l.Close()
}

// Close closes the listener at once. Clients in its accept queue get a reset.
func (l *Listener) Close() error {
	l.finishing.Store(true) // so that Accept returns net.ErrClosed, whatever the wrapped listener returns
	return l.Listener.Close()
}

// Accept returns the next client. After Finish, an error other than net.ErrClosed means that a
// client in the queue could not be accepted yet, for example because no descriptor is free.
func (l *Listener) Accept() (net.Conn, error) {
	for !l.finishing.Load() {
		nc, err := l.Listener.Accept()
		if err == nil || !l.finishing.Load() || !errors.Is(err, os.ErrDeadlineExceeded) {
			return nc, err
		}
	}
	return l.acceptQueued()
}

func (l *Listener) acceptQueued() (net.Conn, error) {
	d, _ := l.Listener.(withDeadline)
	for d != nil && l.late < longestQueue && clientWaits(l.Listener) {
		_ = d.SetDeadline(time.Now().Add(lookAgain))
		nc, err := l.Listener.Accept()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			l.late++
		}
		return nc, err
	}
	_ = l.Close()
	return nil, net.ErrClosed
}
