package http2

import (
	"io"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// dropBody drops what was not read. It is called with mu held.
func (f *flow) dropBody(err error) {
	if f.inEnd == nil {
		f.inEnd = err
	}
	f.whole = f.whole && f.r == f.in.Len() && f.head.Len() == 0
	f.dropIn()
	f.head.Resize(0)
	f.wake()
}

// receive takes a piece of the body, of a frame of n bytes. It is called with mu held.
func (f *flow) receive(p []byte, n int, ends bool) {
	if f.grant -= n; f.grant < 0 {
		f.c.reset(f, FlowControlError)
		return
	}
	f.credit += n - len(p) // padding
	f.move(len(p))
	if f.left >= 0 {
		if f.left -= int64(len(p)); f.left < 0 || ends && f.left > 0 {
			f.c.reset(f, ProtocolError)
			return
		}
	}
	if f.inEnd != nil { // nobody reads it
		f.credit += len(p)
	} else if f.joinsHead(len(p)) {
		f.credit += len(p)
		f.head.Append(p)
	} else {
		f.owed += len(p)
		f.push(p)
	}
	if ends {
		f.ended(nil)
	} else if n > len(p) && f.inEnd == nil {
		f.took() // nobody reads padding
	}
	f.wake()
}

// move counts n bytes of a body that came or was written. It is called with mu held.
func (f *flow) move(n int) {
	f.moved += uint64(n)
	f.c.moved += uint64(n)
}

// joinsHead reports whether n bytes of a response's body fit behind its headers, which nobody has read yet. One
// read then takes both, and no other buffer is needed.
func (f *flow) joinsHead(n int) bool {
	return f.c.isUpstream && f.head.Len() > 0 && f.in.Len() == 0 && f.head.Room() >= n
}

// push adds to what can be read. As much as fits goes to where a reader waits for it: by way of f.in, PUTs of
// 16 MiB cost 1.6 times the CPU. A reader with all that it can take is to run soon, while the bytes are in the
// cache.
func (f *flow) push(p []byte) {
	if f.head.Len() == 0 { // f.in is empty, then, until into is full
		n := copy(f.into[f.filled:], p)
		f.filled += n
		if p = p[n:]; f.into != nil && f.filled == len(f.into) {
			f.c.yields = true
		}
	}
	if len(p) == 0 {
		return
	}
	if f.r > 0 && len(p) > f.in.Room() {
		f.in.Drop(f.r)
		f.r = 0
	}
	f.in.Append(p)
}

// dropIn empties f.in, and returns what is not needed for a small body.
func (f *flow) dropIn() {
	f.r = 0
	if f.in.Resize(0); f.in.Cap() > buffer.Small {
		f.in.Put()
	}
}

// Read reads the peer's message: records of its headers (see http1.Request.Compose), and then its body.
// Behind the body it waits for the end of the stream.
func (f *flow) Read(p []byte) (int, error) { return f.readWithin(p, false) }

// ReadBody is like Read, but returns io.EOF at the end of the body, with its last bytes if it has come with
// them.
func (f *flow) ReadBody(p []byte) (int, error) { return f.readWithin(p, true) }

func (f *flow) readWithin(p []byte, body bool) (int, error) {
	f.c.mu.Lock()
	f.readerBusy = false
	n, stop, err := f.read(p, body)
	f.readerBusy = !f.c.isUpstream || err != os.ErrDeadlineExceeded // after a timeout, a response is read again
	f.c.mu.Unlock()
	if stop != nil {
		stop()
	}
	if n > 0 {
		f.c.flushElsewhere() // credit, without a wait for the peer
	}
	return n, err
}

// read is Read with mu held. The caller calls stop, if it is not nil, without mu.
func (f *flow) read(p []byte, body bool) (n int, stop func(), err error) {
	for {
		switch {
		case expired(f.readBy):
			return 0, nil, os.ErrDeadlineExceeded
		case f.head.Len() > 0:
			n := copy(p, f.head.Bytes())
			if f.head.Drop(n); f.head.Len() == 0 {
				f.head.Put()
			}
			return n, nil, f.endOf(body)
		case f.r < f.in.Len():
			n := copy(p, f.in.Bytes()[f.r:])
			if f.r += n; f.r == f.in.Len() {
				f.dropIn()
			}
			f.took()
			if !f.behindSince.IsZero() && f.unread() <= f.c.behindFrom() {
				stop, f.behindSince, f.caughtUp = f.caughtUp, noTime, nil
			}
			return n, stop, f.endOf(body)
		case body && f.whole:
			return 0, nil, io.EOF
		case f.inEnd != nil:
			return 0, nil, f.inEnd
		}
		if n := f.waitFor(p); n > 0 {
			f.took()
			return n, nil, f.endOf(body)
		}
	}
}

// waitFor waits until the stream may be read, and returns how many bytes have come to p meanwhile. It is called
// with mu held.
func (f *flow) waitFor(p []byte) (n int) {
	if f.into != nil { // somebody else waits
		f.wait(f.readBy)
		return 0
	}
	f.into = p
	f.wait(f.readBy)
	n = f.filled
	f.into, f.filled = nil, 0
	return n
}

// BodyRead reports whether the body came whole and all of it was read.
func (f *flow) BodyRead() bool {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.endOf(true) != nil
}

// endOf returns io.EOF if a reader of the body has read all of it.
func (f *flow) endOf(body bool) error {
	if body && f.whole && f.r == f.in.Len() && f.head.Len() == 0 {
		return io.EOF
	}
	return nil
}

// took credits bytes that were read. It is called with mu held.
func (f *flow) took() {
	n := max(0, f.owed-f.unread())
	f.owed -= n
	if f.credit += n; f.remoteEnded || f.closed {
		return
	}
	if credit := f.credit; credit >= f.c.peer.Window/4 || f.grant == 0 && credit > 0 {
		f.credit = 0
		f.grant += credit
		f.c.control(16, func(dst []byte) []byte { return appendWindowUpdate(dst, f.id, credit) })
	}
}

// unread returns how many bytes of the body came that were not read. It is called with mu held.
func (f *flow) unread() int { return f.in.Len() - f.r }

// behindFrom is how many bytes a reader may be behind before the Backlog counts it.
func (l *link) behindFrom() int { return l.peer.Window / 2 }

// count has the Backlog count the stream if its reader is behind. It is called without mu.
func (f *flow) count() {
	if f.c.peer.Backlog == nil {
		return
	}
	f.c.mu.Lock()
	is := f.behindSince.IsZero() && !f.closed && f.unread() > f.c.behindFrom()
	if is {
		f.behindSince = f.c.now()
	}
	f.c.mu.Unlock()
	if !is {
		return
	}
	stop := f.c.peer.Backlog.Wait(int64(f.c.peer.Window), f.giveUp)
	f.c.mu.Lock()
	if !f.behindSince.IsZero() && f.caughtUp == nil {
		f.caughtUp, stop = stop, nil
	}
	f.c.mu.Unlock()
	if stop != nil {
		stop() // it caught up meanwhile
	}
}

// readerDelay is for how long a reader that is expected to read is not behind: longer than the proxy delays it.
const readerDelay = time.Second

// isBehind reports whether the reader leaves much unread. If it is not busy, the delay is the proxy's own, unless it
// exceeds readerDelay: then an upstream may hold the reader up, by taking nothing of the request. The Backlog asks
// again when the next body waits. Until then memory may exceed the bound of the Backlog, by at most one window for each
// such stream. The slots of clients and of their streams bound how many there are. It is called with mu held.
func (f *flow) isBehind() bool {
	return f.unread() > f.c.behindFrom() && (f.readerBusy || !f.behindSince.IsZero() && time.Since(f.behindSince) > readerDelay)
}

// giveUp drops the body because its reader is behind and memory is short.
func (f *flow) giveUp() bool {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if !f.isBehind() {
		return false
	}
	f.dropBody(ErrNotRead)
	return true
}

// ended takes the end of the body, with its trailers if there are any. It is called with mu held.
func (f *flow) ended(trailers *fields) {
	f.remoteEnded, f.whole = true, f.inEnd == nil
	if f.tunnel && f.inEnd == nil {
		f.inEnd = io.EOF
	}
	if trailers != nil && f.whole {
		f.trailers = trailers.trailers()
	}
	f.wake()
	f.self.peerEnded()
}

// Trailers returns the trailers of the body, after its end. Those that are not allowed in a trailer section
// are left out, see http1.HeaderName.TrailerForbidden.
func (f *flow) Trailers() []http1.Header {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return f.trailers
}

func (f *flow) receiveTrailers(trailers *fields) {
	if f.left > 0 {
		f.c.reset(f, ProtocolError)
		return
	}
	f.ended(trailers)
}
