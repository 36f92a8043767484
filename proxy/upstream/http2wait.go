package upstream

import (
	"context"
	"errors"
	"slices"
	"time"
)

// mostHTTP2Conns is how many HTTP/2 connections an endpoint has that take requests. An upstream that allows few
// streams on each, or reads none of the bodies, gets as many, and no more: half of the common limit of 1024
// descriptors, as for idle connections (DefaultIdleConns). Further requests wait for a stream. Connections that end
// after a GOAWAY are not counted: each serves a request, and they must not keep requests from an upstream that restarts.
const mostHTTP2Conns = 512

// recheck is how often the first request that waits for a stream looks for one without being woken: a connection
// may have room again for other reasons than the end of a stream.
const recheck = 100 * time.Millisecond

// errFull means that there are as many connections as there may be, without a free stream.
var errFull = errors.New("no stream is free on as many connections as there may be")

// streamWait is a request that waits for a stream.
type streamWait struct {
	since  time.Time     // the order of the queue
	turn   chan struct{} // has a value when it is worth looking for a stream
	queued bool          // it is in the queue; guarded by http2Pool.mu
}

// awaitStream waits for a stream, or for leave to dial, in the order of arrival. It ends with ctx. While it dials, or
// waits for a dial, it is not in the queue: the streams that become free meanwhile are for those behind it.
func (s *http2Pool) awaitStream(ctx context.Context, o GetOptions) (*Conn, error) {
	if o.dontQueue {
		return nil, s.noStream(errFull, false)
	}
	w := s.enqueue(o.waitsSince)
	defer s.leave(w)
	o.Fresh = false // an older connection is better than none
	for {
		var again <-chan time.Time
		if s.isFirst(w) {
			o.first = w
			if c, err := s.openOrDial(ctx, o); err != errFull {
				return c, err
			}
			if s.comeBack(w) {
				continue // a stream may have become free while nobody was in the queue
			}
			again = time.After(recheck)
		}
		select {
		case <-w.turn:
		case <-again:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, &DialError{Kind: KindCanceled, Addr: s.pool.target.Address, Err: ctx.Err()}
			}
			return nil, s.noStream(ctx.Err(), !o.looksAgain)
		}
	}
}

// noStream returns the error of a request that got no stream, and counts the request if counts is set.
func (s *http2Pool) noStream(err error, counts bool) error {
	if counts {
		s.pool.dialErrors[KindNoStream].Add(1)
	}
	return &DialError{Kind: KindNoStream, Addr: s.pool.target.Address, Err: err}
}

// enqueue queues a request that waits since a moment; zero: since now.
func (s *http2Pool) enqueue(since time.Time) *streamWait {
	if since.IsZero() {
		since = time.Now()
	}
	w := &streamWait{since: since, turn: make(chan struct{}, 1), queued: true}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := len(s.queue)
	for at > 0 && s.queue[at-1].since.After(since) {
		at--
	}
	s.queue = slices.Insert(s.queue, at, w)
	s.queued.Add(1)
	return w
}

// comeBack makes w the first one again if it has left, since the dial that it waited for brought no stream for it. It
// reports whether it had left.
func (s *http2Pool) comeBack(w *streamWait) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.queued {
		return false
	}
	w.queued = true
	s.queue = slices.Insert(s.queue, 0, w)
	s.queued.Add(1)
	return true
}

// leave takes w out of the queue, if it is there. The next one is first then.
func (s *http2Pool) leave(w *streamWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.queued {
		return
	}
	w.queued = false
	s.queue = slices.DeleteFunc(s.queue, func(o *streamWait) bool { return o == w })
	s.queued.Add(-1)
	s.wakeFirst()
}

func (s *http2Pool) isFirst(w *streamWait) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue[0] == w
}

// freed is called when a stream has given its place back, possibly with a lock of its connection held.
func (s *http2Pool) freed() {
	if s.queued.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeFirst()
}

// wakeFirst lets the first request that waits for a stream look for one. It requires mu.
func (s *http2Pool) wakeFirst() {
	if len(s.queue) == 0 {
		return
	}
	select {
	case s.queue[0].turn <- struct{}{}:
	default:
	}
}
