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
func (p *http2Pool) awaitStream(ctx context.Context, o GetOptions) (*Conn, error) {
	if o.dontQueue {
		return nil, p.noStream(errFull, false)
	}
	w := p.enqueue(o.waitsSince)
	defer p.leave(w)
	o.Fresh = false // an older connection is better than none
	for {
		var again <-chan time.Time
		if p.isFirst(w) {
			o.first = w
			if c, err := p.openOrDial(ctx, o); err != errFull {
				return c, err
			}
			if p.comeBack(w) {
				continue // a stream may have become free while nobody was in the queue
			}
			again = time.After(recheck)
		}
		select {
		case <-w.turn:
		case <-again:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil, &DialError{Kind: KindCanceled, Addr: p.pool.target.Address, Err: ctx.Err()}
			}
			return nil, p.noStream(ctx.Err(), !o.looksAgain)
		}
	}
}

// noStream returns the error of a request that got no stream, and counts the request if counts is set.
func (p *http2Pool) noStream(err error, counts bool) error {
	if counts {
		p.pool.dialErrors[KindNoStream].Add(1)
	}
	return &DialError{Kind: KindNoStream, Addr: p.pool.target.Address, Err: err}
}

// enqueue queues a request that waits since a moment; zero: since now.
func (p *http2Pool) enqueue(since time.Time) *streamWait {
	if since.IsZero() {
		since = time.Now()
	}
	w := &streamWait{since: since, turn: make(chan struct{}, 1), queued: true}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := len(p.queue)
	for at > 0 && p.queue[at-1].since.After(since) {
		at--
	}
	p.queue = slices.Insert(p.queue, at, w)
	p.queued.Add(1)
	return w
}

// comeBack makes w the first one again if it has left, since the dial that it waited for brought no stream for it. It
// reports whether it had left.
func (p *http2Pool) comeBack(w *streamWait) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.queued {
		return false
	}
	w.queued = true
	p.queue = slices.Insert(p.queue, 0, w)
	p.queued.Add(1)
	return true
}

// leave takes w out of the queue, if it is there. The next one is first then.
func (p *http2Pool) leave(w *streamWait) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.queued {
		return
	}
	w.queued = false
	p.queue = slices.DeleteFunc(p.queue, func(o *streamWait) bool { return o == w })
	p.queued.Add(-1)
	p.wakeFirst()
}

func (p *http2Pool) isFirst(w *streamWait) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue[0] == w
}

// freed is called when a stream has given its place back, possibly with a lock of its connection held.
func (p *http2Pool) freed() {
	if p.queued.Load() == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeFirst()
}

// wakeFirst lets the first request that waits for a stream look for one. It requires mu.
func (p *http2Pool) wakeFirst() {
	if len(p.queue) == 0 {
		return
	}
	select {
	case p.queue[0].turn <- struct{}{}:
	default:
	}
}
