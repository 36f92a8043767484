package exchange

import (
	"io"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// A large body that nobody keeps moves inside the kernel (splice(2), by
// TCPConn.ReadFrom), a piece at a time so that deadlines can follow. A piece
// within the body idle timeout of 60 s is the slowest a peer may be: 4.3 KiB/s.
const (
	splicePiece = 256 << 10
	spliceFrom  = 32 << 10 // less is not worth the set-up
	// spliceTail is the end of a body, which is read and written, so that it is known when its last bytes
	// are in hand: see endRequest.
	spliceTail = 4 << 10
)

// spliceTo sends n bytes from src to dst inside the kernel, by way of r. It returns early only
// with an error, or when src ended.
func spliceTo(dst, src *net.TCPConn, n int64, r *io.LimitedReader) (int64, error) {
	r.R, r.N = src, n
	moved, err := dst.ReadFrom(r)
	r.R = nil
	rawsocket.NoteSplice(err)
	return moved, err
}

// canSplice: the rest of the body has a length and is not kept, and the system lets us.
func (u *upload) canSplice() bool {
	b := &u.r.Body
	return b.Framing.Kind == http1.BodyLength && !b.Keeping && b.Left >= spliceFrom && b.Cursor >= len(b.Kept) &&
		u.r.Conn.R == u.r.Conn.W && u.r.Conn.TCP != nil && rawTCP(u.att.Up) != nil && rawsocket.CanSplice()
}

// spliceBody is pumpBody inside the kernel, for all of the body but its end. Without more, watch says
// whether the client is to be watched.
func (u *upload) spliceBody() (more, watch bool) {
	b, c := &u.r.Body, u.r.Conn
	u.att.Spliced = true
	if !b.Started {
		b.Started, b.Began = true, u.r.Now()
	}
	for b.Left > spliceTail {
		until := b.ReadDeadline(u.r.Now())
		c.SetRead(until, time.Second)
		if u.Stopping.Load() {
			return false, false
		}
		u.att.ExtendWrite(u.r.Now(), u.r.BodyIdle())
		u.pieces.Add(1)
		want := min(b.Left-spliceTail, splicePiece)
		n, err := spliceTo(rawTCP(u.att.Up), c.TCP, want, &u.spliced)
		b.Total += n
		b.Left -= n
		if n < want {
			if again, watch := u.spliceEnded(n, err, until); !again {
				return false, watch
			}
		}
	}
	return true, false
}

// spliceEnded tells whose side ended a splice early, which the error does not
// say, whether it can go on, and whether the client is to be watched. After
// the upstream's side ended it cannot: what was in the kernel's pipe is lost.
func (u *upload) spliceEnded(n int64, err error, until clock.Instant) (again, watch bool) {
	now := u.r.Now()
	switch {
	case u.Stopping.Load():
	case err == nil || err == io.EOF:
		u.clientFailed(request.ErrBodyCut)
	case rawsocket.IsTimeout(err) && !u.att.WriteBy.IsZero() && !now.Before(u.att.WriteBy):
		return false, u.failed()
	case rawsocket.IsTimeout(err) && !now.Before(until):
		if n > 0 {
			return true, false
		}
		u.clientFailed(request.ErrBodyTooSlow)
	case u.r.Conn.HungUp():
		u.clientFailed(attempt.ErrClientGone)
	case rawsocket.IsTimeout(err):
		u.r.Conn.ReadAt = clock.LongAgo // a late call that meant a wait before this one; nothing is in the pipe while a read waits
		return true, false
	default:
		return false, u.failed()
	}
	return false, false
}

// rawTCP is the connection for the kernel to move bytes from and to, nil when
// there is none (TLS, unix sockets, tests in memory).
func rawTCP(c *upstream.Conn) *net.TCPConn {
	t, _ := c.Raw().(*net.TCPConn)
	return t
}
