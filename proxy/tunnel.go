package proxy

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// tunnel answers an upgrade that the upstream accepted and moves bytes both
// ways until both sides have ended or nothing moved for the idle timeout.
func (x *exchange) tunnel() (int, policy.Outcome) {
	x.stopPump()
	x.mustClose, x.started = true, true
	o := forward.ResponseOptions{Minor: 1, Upgrade: true, Via: x.route.Forward.Via}
	if x.route.ResponseHeaders {
		o.Attempts = x.attempts
	}
	x.out = forward.AppendResponseHeaders(x.cleanOut(), &x.resp, &o)
	x.out = append(x.out, x.up.Buf[x.upR:x.upW]...)
	if x.flush() != nil {
		x.dropUpstream()
		x.mustReset = true
		return 101, policy.OutcomeClientGone
	}
	x.spareBuffers.release()
	t := &tunnel{idle: x.set.TunnelIdleTimeout, c: x.c, client: x.c.nc, up: x.up}
	x.c.tunnel.Store(t)
	t.run()
	x.c.tunnel.Store(nil)
	x.giveUpBuffer()
	_ = x.up.Close()
	x.up = nil
	x.mustReset = t.cut.Load()
	return 101, policy.OutcomeUpgraded
}

// tunnel is a pair of byte streams.
type tunnel struct {
	idle   time.Duration
	c      *conn
	client net.Conn // of c
	up     *upstream.Conn
	moved  atomic.Int64 // pieces, either way
	ending atomic.Bool  // each side is to be told that nothing more comes
	over   atomic.Bool  // both connections were ended
	cut    atomic.Bool  // ... since one broke
}

// end ends both directions behind what was moved. It may be called on nil, by
// anyone and more than once, and does not wait.
func (t *tunnel) end() {
	if t != nil && !t.ending.Swap(true) {
		_ = t.client.SetReadDeadline(past)
		_ = t.up.SetReadDeadline(past)
	}
}

// run moves bytes until both directions have ended. The bytes that the client
// sent behind its request go first.
func (t *tunnel) run() {
	c := t.c
	_ = t.client.SetWriteDeadline(time.Time{})
	_ = t.up.SetWriteDeadline(time.Time{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if c.r < c.w {
			if _, err := t.up.Write(c.in[c.r:c.w]); err != nil {
				t.breakOff()
				return
			}
			c.r = c.w
		}
		t.copy(t.up, t.client)
	}()
	t.copy(t.client, t.up)
	<-ended
}

// copy moves bytes from src to dst until src ends, then tells dst so. On an
// error or at the idle timeout both connections are ended, so that the other
// direction ends too.
func (t *tunnel) copy(dst, src net.Conn) {
	buf := getBuffer(mediumBuffer)
	defer putBuffer(buf)
	for {
		seen := t.moved.Load()
		t.extend(src, dst)
		n, err := src.Read(buf)
		if isTimeout(err) && t.ending.Load() {
			err = io.EOF
		}
		if n > 0 {
			t.moved.Add(1)
			if _, werr := dst.Write(buf[:n]); werr != nil {
				t.breakOff()
				return
			}
			continue
		}
		switch {
		case err == io.EOF && closeWrite(dst):
		case isTimeout(err) && t.moved.Load() != seen:
			continue // the other direction is alive
		case err == io.EOF, isTimeout(err):
			t.close()
		default:
			t.breakOff()
		}
		return
	}
}

// close ends both connections in order.
func (t *tunnel) close() {
	if !t.over.Swap(true) {
		_ = t.client.Close()
		_ = t.up.Close()
	}
}

// breakOff ends both connections so that neither side takes it for an end in
// order: one broke, and what was in flight is lost.
func (t *tunnel) breakOff() {
	if !t.over.Swap(true) {
		t.cut.Store(true)
		t.c.abort()
		t.up.Abort()
	}
}

func (t *tunnel) extend(src, dst net.Conn) {
	by := time.Time{}
	if t.idle > 0 {
		by = time.Now().Add(t.idle)
	}
	_ = src.SetReadDeadline(by)
	_ = dst.SetWriteDeadline(by)
	if t.ending.Load() {
		_ = src.SetReadDeadline(past) // it was asked for before the deadline was moved
	}
}

// closeWrite tells the peer that nothing more comes; false where that cannot
// be said without closing.
func closeWrite(c net.Conn) bool {
	if u, ok := c.(*upstream.Conn); ok {
		c = u.Conn
	}
	h, ok := c.(interface{ CloseWrite() error })
	return ok && h.CloseWrite() == nil
}
