package proxy

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// hedgeAttempt is a hedge in flight. A goroutine of its own sends it and reads the response
// headers. The exchange starts the goroutine and waits for its end (done) before it touches what
// the goroutine writes or returns what it reads. stop makes the goroutine end soon.
type hedgeAttempt struct {
	first   *upstream.Conn // of the attempt it stands beside, whose reader is woken at the end
	pool    *upstream.Group
	fault   policy.Fault // made up for it
	request [][]byte
	method  []byte
	limits  http1.Limits
	permit  policy.Permit
	asked   bool           // the throttle waits to hear of it
	budget  *policy.Budget // a token of which is taken; nil: none
	began   instant
	span    AttemptSpan // nil: off
	server  *Server
	until   instant // zero: never
	ctx     context.Context
	cancel  context.CancelFunc
	isOver  atomic.Bool   // it ended, and done will be closed without a wait
	done    chan struct{} // the goroutine has ended

	mu      sync.Mutex     // guards stopped and the setting of up
	stopped bool           // ... by stop
	up      *upstream.Conn // nil: none, or closed

	// Owned by the goroutine, and by the exchange after done.
	sentAt  instant
	wrote   bool // the upstream has a byte of it
	r, w    int  // up.Buf[r:w] is read and not yet used
	resp    http1.Response
	cause   policy.Cause
	dialErr *upstream.DialError
	member  *upstream.Endpoint // whom it was sent to
	addr    string             // likewise; "" before there was a connection
	result  policy.Attempt     // what cause and resp mean; the exchange's
}

// stop makes the goroutine end at once, whatever it does. Any goroutine may call it, more than
// once.
func (r *hedgeAttempt) stop() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.up != nil {
		_ = r.up.SetDeadline(past)
	}
}

// run is the body of the goroutine.
func (r *hedgeAttempt) run() {
	defer close(r.done)
	defer r.cancel()
	defer func() {
		if fault := recover(); fault != nil {
			r.server.report(fault)
			r.cause = policy.CauseReset
			r.abort()
		}
		r.isOver.Store(true)
		_ = r.first.SetReadDeadline(past)
	}()
	r.cause = r.attempt()
}

// attempt sends the request and reads the response headers. The connection stays open after a
// status and after a timeout.
func (r *hedgeAttempt) attempt() policy.Cause {
	if r.fault.Delay > 0 && !r.stall() {
		return policy.CauseAttemptTimeout
	}
	cause := r.send(false)
	if cause == policy.CauseIdleClose && !r.isStopped() {
		cause = r.send(true) // what was pooled was stale
	}
	if cause != policy.CauseStatus {
		return cause
	}
	r.sentAt = r.server.now()
	cause = r.readFinalHead()
	if cause != policy.CauseStatus && cause != policy.CauseAttemptTimeout {
		r.abort()
	}
	return cause
}

// send writes the request to a connection. CauseStatus means that it was sent whole.
func (r *hedgeAttempt) send(fresh bool) policy.Cause {
	up, err := r.connect(fresh)
	if err != nil {
		return r.dialFailed(err)
	}
	if !r.publishConn(up) {
		if r.fault.Breaks() {
			up.Abort()
		} else {
			up.Release(0) // for the next request
		}
		return policy.CauseDial
	}
	n, err := up.Writev(slices.Clone(r.request)) // which cuts what it is given
	r.wrote = r.wrote || n > 0
	switch {
	case err == nil:
		return policy.CauseStatus
	case n > 0:
		r.abort()
		return policy.CauseReset
	case up.Reused && !isTimeout(err):
		r.take().CloseStale()
		return policy.CauseIdleClose
	}
	r.abort()
	return policy.CauseDial
}

// stall waits out an injected delay. To all others the upstream has the request and is silent. It
// reports false if there is no more time, or after stop.
func (r *hedgeAttempt) stall() bool {
	r.wrote = true
	delay := time.NewTimer(r.fault.Delay)
	defer delay.Stop()
	select {
	case <-delay.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// connect gets a connection, to another endpoint than that of the first attempt if there is one, or
// an injected fault in its place.
func (r *hedgeAttempt) connect(fresh bool) (*upstream.Conn, error) {
	if r.fault.Breaks() {
		return standIn(r.pool, r.fault), nil
	}
	return r.pool.Get(r.ctx, upstream.GetOptions{Fresh: fresh, Avoid: r.first.Addr})
}

func (r *hedgeAttempt) dialFailed(err error) policy.Cause {
	if errors.As(err, &r.dialErr) && r.dialErr.Kind == upstream.KindTLS {
		return policy.CauseTLS
	}
	return policy.CauseDial
}

// publishConn makes up known to stop. It reports false if stop was called already.
func (r *hedgeAttempt) publishConn(up *upstream.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false
	}
	_ = up.SetDeadline(r.server.at(r.until))
	r.up, r.member, r.addr = up, up.Endpoint, up.Addr
	return true
}

func (r *hedgeAttempt) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

// take returns the connection, or nil. The caller then owns it.
func (r *hedgeAttempt) take() *upstream.Conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	up := r.up
	r.up = nil
	if up != nil {
		r.putBuf(up)
	}
	return up
}

// abort ends the connection, if there is one.
func (r *hedgeAttempt) abort() {
	if up := r.take(); up != nil {
		up.Abort()
	}
}

// readFinalHead reads response headers until resp has final ones. It drops informational responses:
// the client gets those of the first attempt.
func (r *hedgeAttempt) readFinalHead() policy.Cause {
	r.up.Buf = getBuffer(mediumBuffer)
	for interim := 0; interim < maxInformational; {
		n, err := r.resp.Parse(r.up.Buf[r.r:r.w], r.limits, r.method)
		switch {
		case err != nil || n > 0 && r.resp.Status == 101: // which was not asked for
			return policy.CauseMalformed
		case n > 0 && !r.resp.Interim():
			r.r += n
			return policy.CauseStatus
		case n > 0:
			r.r += n
			interim++
			continue
		}
		if err := r.read(); err != nil {
			return causeOf(err, r.up.Reused)
		}
	}
	return policy.CauseMalformed
}

// read makes room and reads once.
func (r *hedgeAttempt) read() error {
	up := r.up
	switch {
	case r.w < len(up.Buf):
	case r.r > 0:
		r.w = copy(up.Buf, up.Buf[r.r:r.w])
		r.r = 0
	default:
		r.growBuf()
	}
	n, err := up.Read(up.Buf[r.w:])
	r.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
