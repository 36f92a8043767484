package exchange

import (
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// tunnel responds to an upgrade that the upstream accepted. It moves bytes both ways until both
// sides have ended, or nothing moved for the idle timeout.
func (re *relay) tunnel(end request.End) request.End {
	re.at.running().StopUpload()
	if re.at.w.Upgrade(re.at.running().Response(), re.at.running().Unread()) != nil {
		re.at.running().Drop()
		re.at.w.Reset()
		end.Outcome = policy.OutcomeClientGone
		return end
	}
	t := &tunnel{idle: re.at.Settings.TunnelIdleTimeout, c: re.at.Conn, client: re.at.Conn.NC, up: re.at.running().Take()}
	re.at.Conn.Buffers.Release()
	defer func() { _ = t.up.Close() }() // also after a fault
	re.upgraded.Store(t)
	t.run()
	re.upgraded.Store(nil)
	if t.cut.Load() {
		re.at.w.Reset()
	}
	end.Outcome = policy.OutcomeUpgraded
	return end
}

// tunnel is a pair of byte streams.
type tunnel struct {
	idle   time.Duration
	c      *downstream.Conn
	client net.Conn // of c
	up     *upstream.Conn
	moved  atomic.Int64 // pieces, either way
	ending atomic.Bool  // both directions must end after what was moved
	over   atomic.Bool  // both connections were ended
	cut    atomic.Bool  // both connections were ended because one broke
}

// endTunnel ends the tunnel in order, if there is one. It is safe for concurrent use.
func (re *relay) endTunnel() { re.upgraded.Load().end() }

// end ends both directions after what was moved. It does not wait. t may be nil. It is safe for
// concurrent use and may be called more than once.
func (t *tunnel) end() {
	if t != nil && !t.ending.Swap(true) {
		_ = t.client.SetReadDeadline(downstream.Past)
		_ = t.up.SetReadDeadline(downstream.Past)
	}
}

// run moves bytes until both directions have ended. The bytes that the client sent after its
// request go first.
func (t *tunnel) run() {
	c := t.c
	_ = t.client.SetWriteDeadline(time.Time{})
	_ = t.up.SetWriteDeadline(time.Time{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if n := c.Buffered(); n > 0 {
			if _, err := t.up.Write(c.Peek()); err != nil {
				t.breakOff()
				return
			}
			c.Discard(n)
		}
		t.copy(t.up, t.client)
	}()
	t.copy(t.client, t.up)
	<-ended
}

// copy moves bytes from src to dst until src ends, then half-closes dst. On an error or at the
// idle timeout it ends both connections, so that the other direction ends too.
func (t *tunnel) copy(dst, src net.Conn) {
	buf := buffer.Get(buffer.Medium)
	defer buf.Put()
	for {
		seen := t.moved.Load()
		t.extendRead(src)
		n, err := src.Read(buf.Bytes())
		if rawsocket.IsTimeout(err) && t.ending.Load() {
			err = io.EOF
		}
		if n > 0 {
			t.moved.Add(1)
			_ = dst.SetWriteDeadline(t.idleFromNow())
			if _, werr := dst.Write(buf.Bytes()[:n]); werr != nil {
				t.breakOff()
				return
			}
			continue
		}
		switch {
		case err == io.EOF && closeWrite(dst):
		case rawsocket.IsTimeout(err) && t.moved.Load() != seen:
			continue // the other direction is alive
		case err == io.EOF, rawsocket.IsTimeout(err):
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

// breakOff resets both connections, so that neither side takes it for an orderly end: one broke,
// and what was in flight is lost.
func (t *tunnel) breakOff() {
	if !t.over.Swap(true) {
		t.cut.Store(true)
		t.c.Abort()
		t.up.Abort()
	}
}

func (t *tunnel) extendRead(src net.Conn) {
	_ = src.SetReadDeadline(t.idleFromNow())
	if t.ending.Load() {
		_ = src.SetReadDeadline(downstream.Past) // end ran before this call moved the deadline
	}
}

// idleFromNow returns when a read or write that begins now has taken as long as the tunnel may be
// idle; zero means never.
func (t *tunnel) idleFromNow() time.Time {
	if t.idle <= 0 {
		return time.Time{}
	}
	return time.Now().Add(t.idle)
}

// closeWrite half-closes c, so that the peer reads the end of the stream. It reports false if c
// cannot be half-closed.
func closeWrite(c net.Conn) bool {
	if u, ok := c.(*upstream.Conn); ok {
		c = u.Conn
	}
	h, ok := c.(interface{ CloseWrite() error })
	return ok && h.CloseWrite() == nil
}
