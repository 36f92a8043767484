package request

import (
	"io"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// A body that is not kept need not pass through the process: the kernel moves it from the client's
// connection to the upstream's.

// spliceTail is the end of a body, in bytes, which is read and written. So it is known when its last
// bytes are here: the response may be whole before they are sent.
const spliceTail = 4 << 10

// longPiece is how long a piece takes at least before it is checked who was slow. If bytes of the
// client wait then, it was the upstream.
const longPiece = time.Second

// CanSplice reports whether the kernel can move the rest of the body: it has a length and is not kept.
func (b *Body) CanSplice() bool {
	c := b.of.Conn
	return b.framing.Kind == http1.BodyLength && !b.keeping && b.left >= attempt.SpliceFrom && b.cursor >= len(b.kept) &&
		c.Buffered() == 0 && c.TCP != nil && rawsocket.CanSplice()
}

// SpliceTo moves the next piece of the body to dst inside the kernel. more reports whether another
// piece can follow; the end of the body is not moved that way. dstBy is the write deadline of dst. The
// error is attempt.ErrNotTaken if dst ended it, and otherwise that of the client.
func (b *Body) SpliceTo(dst *net.TCPConn, dstBy clock.Instant) (more bool, err error) {
	c := b.of.Conn
	b.start()
	began := b.now()
	until := b.readDeadline(began, began)
	c.SetRead(until, time.Second)
	if b.isInterrupted() {
		return false, attempt.ErrStopped
	}
	if c.IsTurnedAway() {
		return false, ErrTurnedAway
	}
	b.pieces.Add(1)
	want := min(b.left-spliceTail, attempt.SplicePiece)
	n, err := attempt.Splice(dst, c.TCP, want)
	b.total += n
	b.left -= n
	if took := b.now().Sub(began); took < longPiece || !c.HasUnread() {
		b.waited += took
	}
	if n < want {
		err = b.spliceEnded(n, err, until, dstBy)
	}
	return err == nil && b.left > spliceTail, err
}

// spliceEnded determines whose side ended a splice early, because err does not show it. It returns nil
// if the splice can continue. After the upstream's side ended it cannot: what was in the kernel's pipe
// is lost.
func (b *Body) spliceEnded(n int64, err error, until, dstBy clock.Instant) error {
	c, now := b.of.Conn, b.now()
	switch {
	case b.isInterrupted():
		return attempt.ErrStopped
	case err == nil || err == io.EOF:
		return ErrBodyCut
	case rawsocket.IsTimeout(err) && !dstBy.IsZero() && !now.Before(dstBy):
		return attempt.ErrNotTaken
	case rawsocket.IsTimeout(err) && c.IsTurnedAway():
		return ErrTurnedAway
	case rawsocket.IsTimeout(err) && !now.Before(until):
		if n > 0 {
			return nil
		}
		return ErrBodyTooSlow
	case c.HungUp():
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err):
		c.ReadMoved() // a late wake-up for an earlier wait; the pipe is empty while a read waits
		return nil
	}
	return attempt.ErrNotTaken
}
