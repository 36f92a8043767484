package upload

import (
	"io"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// A large body that is not kept moves inside the kernel (splice(2), by TCPConn.ReadFrom). It moves
// piece by piece, so that deadlines can follow. One piece within the body idle timeout of 60 s is
// the slowest rate allowed for a peer: 4.3 KiB/s.
const (
	SplicePiece = 256 << 10
	SpliceFrom  = 32 << 10 // a smaller body is not worth the set-up
	// spliceTail is the end of a body, which is read and written. So it is known when its last
	// bytes are here: the response may be whole before they are sent.
	spliceTail = 4 << 10
)

// Splicer moves bytes between connections inside the kernel.
type Splicer struct{ left io.LimitedReader }

// Move moves n bytes from src to dst. It moves fewer only with an error, or if src ended.
func (s *Splicer) Move(dst, src *net.TCPConn, n int64) (int64, error) {
	s.left.R, s.left.N = src, n
	moved, err := dst.ReadFrom(&s.left)
	s.left.R = nil
	rawsocket.NoteSplice(err)
	return moved, err
}

// canSplice reports whether the rest of the body has a length and is not kept, and the system can
// splice.
func (u *Upload) canSplice() bool {
	b := &u.r.Body
	return b.Framing.Kind == http1.BodyLength && !b.Keeping && b.Left >= SpliceFrom && b.Cursor >= len(b.Kept) &&
		u.r.Conn.R == u.r.Conn.W && u.r.Conn.TCP != nil && u.att.Up.TCP() != nil && rawsocket.CanSplice()
}

// spliceBody does what sendRest does, inside the kernel, for all of the body but its end. If more
// is false, watch reports whether to watch the client.
func (u *Upload) spliceBody() (more, watch bool) {
	b, c := &u.r.Body, u.r.Conn
	u.att.Spliced = true
	if !b.Started {
		b.Started, b.Began = true, u.r.Time.Now()
	}
	for b.Left > spliceTail {
		until := b.ReadDeadline(u.r.Time.Now())
		c.SetRead(until, time.Second)
		if u.Pump.Stopping.Load() {
			return false, false
		}
		u.att.ExtendWrite(u.r.Time.Now(), u.r.Time.BodyIdle())
		u.pieces.Add(1)
		want := min(b.Left-spliceTail, SplicePiece)
		n, err := u.Splicer.Move(u.att.Up.TCP(), c.TCP, want)
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

// spliceEnded determines whose side ended a splice early, because the error does not show it.
// again reports whether the splice can continue, watch whether to watch the client. After the
// upstream's side ended it cannot continue: what was in the kernel's pipe is lost.
func (u *Upload) spliceEnded(n int64, err error, until clock.Instant) (again, watch bool) {
	now := u.r.Time.Now()
	switch {
	case u.Pump.Stopping.Load():
	case err == nil || err == io.EOF:
		u.ClientFailed(request.ErrBodyCut)
	case rawsocket.IsTimeout(err) && !u.att.WriteBy.IsZero() && !now.Before(u.att.WriteBy):
		return false, u.failed()
	case rawsocket.IsTimeout(err) && !now.Before(until):
		if n > 0 {
			return true, false
		}
		u.ClientFailed(request.ErrBodyTooSlow)
	case u.r.Conn.HungUp():
		u.ClientFailed(attempt.ErrClientGone)
	case rawsocket.IsTimeout(err):
		u.r.Conn.ReadAt = clock.LongAgo // a late wake-up for an earlier wait; the pipe is empty while a read waits
		return true, false
	default:
		return false, u.failed()
	}
	return false, false
}
