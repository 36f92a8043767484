package http2

import (
	"io"
	"os"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// dropBody drops what was not read. It is called with mu held.
func (s *flow) dropBody(err error) {
	if s.inEnd == nil {
		s.inEnd = err
	}
	s.whole = s.whole && s.r == s.in.Len() && s.head.Len() == 0
	s.dropIn()
	s.head.Resize(0)
	s.wake()
}

// receive takes a piece of the body, of a frame of n bytes. It is called with mu held.
func (s *flow) receive(p []byte, n int, ends bool) {
	if s.grant -= n; s.grant < 0 {
		s.c.reset(s, FlowControlError)
		return
	}
	s.credit += n - len(p) // padding
	s.move(len(p))
	if s.left >= 0 {
		if s.left -= int64(len(p)); s.left < 0 || ends && s.left > 0 {
			s.c.reset(s, ProtocolError)
			return
		}
	}
	if s.inEnd != nil { // nobody reads it
		s.credit += len(p)
	} else if s.joinsHead(len(p)) {
		s.credit += len(p)
		s.head.Append(p)
	} else {
		s.owed += len(p)
		s.push(p)
	}
	if ends {
		s.ended(nil)
	} else if n > len(p) && s.inEnd == nil {
		s.took() // nobody reads padding
	}
	s.wake()
}

// move counts n bytes of a body that came or was written. It is called with mu held.
func (s *flow) move(n int) {
	s.moved += uint64(n)
	s.c.moved += uint64(n)
}

// joinsHead reports whether n bytes of a response's body fit behind its headers, which nobody has read yet. One
// read then takes both, and no other buffer is needed.
func (s *flow) joinsHead(n int) bool {
	return s.c.isUpstream && s.head.Len() > 0 && s.in.Len() == 0 && s.head.Room() >= n
}

// push adds to what can be read. As much as fits goes to where a reader waits for it: by way of s.in, PUTs of
// 16 MiB cost 1.6 times the CPU. A reader with all that it can take is to run soon, while the bytes are in the
// cache.
func (s *flow) push(p []byte) {
	if s.head.Len() == 0 { // s.in is empty, then, until into is full
		n := copy(s.into[s.filled:], p)
		s.filled += n
		if p = p[n:]; s.into != nil && s.filled == len(s.into) {
			s.c.yields = true
		}
	}
	if len(p) == 0 {
		return
	}
	if s.r > 0 && len(p) > s.in.Room() {
		s.in.Drop(s.r)
		s.r = 0
	}
	s.in.Append(p)
}

// dropIn empties s.in, and returns what is not needed for a small body.
func (s *flow) dropIn() {
	s.r = 0
	if s.in.Resize(0); s.in.Cap() > buffer.Small {
		s.in.Put()
	}
}

// Read reads the peer's message: records of its headers (see http1.Request.Compose), and then its body.
// Behind the body it waits for the end of the stream.
func (s *flow) Read(p []byte) (int, error) { return s.readWithin(p, false) }

// ReadBody is like Read, but returns io.EOF at the end of the body, with its last bytes if it has come with
// them.
func (s *flow) ReadBody(p []byte) (int, error) { return s.readWithin(p, true) }

func (s *flow) readWithin(p []byte, body bool) (int, error) {
	s.c.mu.Lock()
	s.readerBusy = false
	n, stop, err := s.read(p, body)
	s.readerBusy = true
	s.c.mu.Unlock()
	if stop != nil {
		stop()
	}
	if n > 0 {
		s.c.flushElsewhere() // credit, without a wait for the peer
	}
	return n, err
}

// read is Read with mu held. The caller calls stop, if it is not nil, without mu.
func (s *flow) read(p []byte, body bool) (n int, stop func(), err error) {
	for {
		switch {
		case expired(s.readBy):
			return 0, nil, os.ErrDeadlineExceeded
		case s.head.Len() > 0:
			n := copy(p, s.head.Bytes())
			if s.head.Drop(n); s.head.Len() == 0 {
				s.head.Put()
			}
			return n, nil, s.endOf(body)
		case s.r < s.in.Len():
			n := copy(p, s.in.Bytes()[s.r:])
			if s.r += n; s.r == s.in.Len() {
				s.dropIn()
			}
			s.took()
			if s.behind && s.unread() <= s.c.behindFrom() {
				stop, s.behind, s.caughtUp = s.caughtUp, false, nil
			}
			return n, stop, s.endOf(body)
		case body && s.whole:
			return 0, nil, io.EOF
		case s.inEnd != nil:
			return 0, nil, s.inEnd
		}
		if n := s.waitFor(p); n > 0 {
			s.took()
			return n, nil, s.endOf(body)
		}
	}
}

// waitFor waits until the stream may be read, and returns how many bytes have come to p meanwhile. It is called
// with mu held.
func (s *flow) waitFor(p []byte) (n int) {
	if s.into != nil { // somebody else waits
		s.wait(s.readBy)
		return 0
	}
	s.into = p
	s.wait(s.readBy)
	n = s.filled
	s.into, s.filled = nil, 0
	return n
}

// BodyRead reports whether the body came whole and all of it was read.
func (s *flow) BodyRead() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.endOf(true) != nil
}

// endOf returns io.EOF if a reader of the body has read all of it.
func (s *flow) endOf(body bool) error {
	if body && s.whole && s.r == s.in.Len() && s.head.Len() == 0 {
		return io.EOF
	}
	return nil
}

// took credits bytes that were read. It is called with mu held.
func (s *flow) took() {
	n := max(0, s.owed-s.unread())
	s.owed -= n
	if s.credit += n; s.remoteEnded || s.closed {
		return
	}
	if credit := s.credit; credit >= s.c.peer.Window/4 || s.grant == 0 && credit > 0 {
		s.credit = 0
		s.grant += credit
		s.c.control(16, func(dst []byte) []byte { return appendWindowUpdate(dst, s.id, credit) })
	}
}

// unread returns how many bytes of the body came that were not read. It is called with mu held.
func (s *flow) unread() int { return s.in.Len() - s.r }

// behindFrom is how many bytes a reader may be behind before the Backlog counts it.
func (c *link) behindFrom() int { return c.peer.Window / 2 }

// count has the Backlog count the stream if its reader is behind. It is called without mu.
func (s *flow) count() {
	if s.c.peer.Backlog == nil {
		return
	}
	s.c.mu.Lock()
	is := !s.behind && !s.closed && s.unread() > s.c.behindFrom()
	s.behind = s.behind || is
	s.c.mu.Unlock()
	if !is {
		return
	}
	stop := s.c.peer.Backlog.Wait(int64(s.c.peer.Window), s.giveUp)
	s.c.mu.Lock()
	if s.behind && s.caughtUp == nil {
		s.caughtUp, stop = stop, nil
	}
	s.c.mu.Unlock()
	if stop != nil {
		stop() // it caught up meanwhile
	}
}

// isBehind reports whether the reader leaves much unread. It is not behind if it has just not run since the bytes came,
// as before the headers of a response were read: that is the proxy's delay, and the Backlog asks again when the next
// body waits. Until then memory exceeds the bound of the Backlog, by at most one window for each stream whose reader had
// not run. The slots of clients and of their streams bound how many those are. It is called with mu held.
func (s *flow) isBehind() bool { return s.readerBusy && s.unread() > s.c.behindFrom() }

// giveUp drops the body because its reader is behind and memory is short.
func (s *flow) giveUp() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.isBehind() {
		return false
	}
	s.dropBody(ErrNotRead)
	return true
}

// ended takes the end of the body, with its trailers if there are any. It is called with mu held.
func (s *flow) ended(trailers *fields) {
	s.remoteEnded, s.whole = true, s.inEnd == nil
	if s.tunnel && s.inEnd == nil {
		s.inEnd = io.EOF
	}
	if trailers != nil && s.whole {
		s.trailers = trailers.trailers()
	}
	s.wake()
	s.self.peerEnded()
}

// Trailers returns the trailers of the body, after its end. Those that are not allowed in a trailer section
// are left out, see http1.HeaderName.TrailerForbidden.
func (s *flow) Trailers() []http1.Header {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.trailers
}

func (s *flow) receiveTrailers(f *fields) {
	if s.left > 0 {
		s.c.reset(s, ProtocolError)
		return
	}
	s.ended(f)
}
