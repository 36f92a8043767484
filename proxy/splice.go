package proxy

import (
	"io"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
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

const (
	upward = iota
	downward
)

// move sends n bytes from src to dst inside the kernel. It returns early only
// with an error, or when src ended.
func (x *exchange) move(way int, dst, src *net.TCPConn, n int64) (int64, error) {
	r := &x.splice[way]
	r.R, r.N = src, n
	moved, err := dst.ReadFrom(r)
	r.R = nil
	rawsocket.NoteSplice(err)
	return moved, err
}

// canSplice: the rest of the body has a length and is not kept, and the system lets us.
func (x *exchange) canSplice() bool {
	b := &x.body
	return b.framing.Kind == http1.BodyLength && !b.keeping && b.left >= spliceFrom && b.cursor >= len(b.kept) &&
		x.c.r == x.c.w && x.c.tcp != nil && rawTCP(x.up) != nil && rawsocket.CanSplice()
}

// spliceBody is pumpBody inside the kernel, for all of the body but its end. Without more, watch says
// whether the client is to be watched.
func (x *exchange) spliceBody() (more, watch bool) {
	b, c := &x.body, x.c
	x.spliced = true
	if !b.started {
		b.started, b.began = true, x.now()
	}
	for b.left > spliceTail {
		until := b.readDeadline(x.now())
		c.setRead(until, time.Second)
		if x.stop.Load() {
			return false, false
		}
		x.extendUpWrite(x.now())
		x.pieces.Add(1)
		want := min(b.left-spliceTail, splicePiece)
		n, err := x.move(upward, rawTCP(x.up), c.tcp, want)
		b.total += n
		b.left -= n
		if n < want {
			if again, watch := x.spliceEnded(n, err, until); !again {
				return false, watch
			}
		}
	}
	return true, false
}

// spliceEnded tells whose side ended a splice early, which the error does not
// say, whether it can go on, and whether the client is to be watched. After
// the upstream's side ended it cannot: what was in the kernel's pipe is lost.
func (x *exchange) spliceEnded(n int64, err error, until instant) (again, watch bool) {
	now := x.now()
	switch {
	case x.stop.Load():
	case err == nil || err == io.EOF:
		x.clientFailed(errBodyCut)
	case isTimeout(err) && !x.upWrite.IsZero() && !now.Before(x.upWrite):
		return false, x.sendFailed()
	case isTimeout(err) && !now.Before(until):
		if n > 0 {
			return true, false
		}
		x.clientFailed(errBodyTooSlow)
	case x.c.hungUp():
		x.clientFailed(errClientGone)
	case isTimeout(err):
		x.c.readAt = longAgo // a late call that meant a wait before this one; nothing is in the pipe while a read waits
		return true, false
	default:
		return false, x.sendFailed()
	}
	return false, false
}
