package http2

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// UpstreamStream is one request to an upstream. It reads as the records of the response's headers, interim
// ones first, which http1.Response.Compose reads, and then the body. The response may begin before the request
// ends.
//
// One goroutine writes and one reads. Any goroutine may set deadlines and call Close. Its use ends with one
// of Finish and Close. After Finish it may have another request of its connection.
type UpstreamStream struct {
	flow
	conn *Upstream
	kept any // used by its owner

	upstreamState // guarded by mu of the connection
}

// upstreamState is what an UpstreamStream forgets when it has another request.
type upstreamState struct {
	begun  bool  // its headers were written
	at     int64 // where, among all bytes of the connection
	free   bool  // its place among the connection's streams was given back
	noBody bool  // the response has none, whatever its headers say
	grace  *time.Timer
	onEnd  func() // nil: not finished, or already called
}

// errReset is of a stream that the upstream has reset, or whose response is not HTTP.
var errReset = errors.New("the upstream reset the stream")

// end implements stream. What has come can still be read.
func (s *UpstreamStream) end(err error) {
	if s.closed {
		return
	}
	if errors.Is(err, errGone) {
		err = s.conn.lost(s)
	}
	s.closed, s.err = true, err
	if s.inEnd == nil {
		if s.inEnd = err; err == nil {
			s.inEnd = io.EOF
		}
	}
	s.wake()
	s.conn.forget(s)
	if s.grace != nil {
		s.grace.Stop()
	}
	if s.onEnd != nil {
		s.onEnd()
		s.onEnd = nil
	}
}

// lost returns why a stream ended that the connection did not end in order. It is called with mu held.
func (u *Upstream) lost(s *UpstreamStream) error {
	handed := u.out.before + int64(u.out.sent)
	if u.out.writing {
		handed = u.out.handed()
	}
	if u.err == nil && !u.ending || !s.begun || s.at < handed {
		return errReset
	}
	return ErrUnprocessed // nothing of it was sent
}

// unsent implements side.
func (u *Upstream) unsent(written int64) {
	for _, f := range u.streams {
		if s := f.self.(*UpstreamStream); s.at >= written {
			s.end(ErrUnprocessed)
		}
	}
}

// wentAway reports how many streams the upstream took before its GOAWAY, if there was one. It is called with mu
// held.
func (u *Upstream) wentAway() {
	if u.goneAway && u.o.WentAway != nil {
		u.o.WentAway(int(u.lastTaken+1) / 2)
	}
}

// forget gives the place of a stream back. It is called with mu held.
func (u *Upstream) forget(s *UpstreamStream) {
	if s.begun {
		delete(u.streams, s.id)
	}
	if s.free {
		return
	}
	s.free = true
	if u.inFlight--; u.inFlight == 0 {
		u.unused.clear()
		u.emptied()
	}
	if u.o.Freed != nil {
		u.o.Freed()
	}
}

// peerEnded implements stream: the response came whole.
func (s *UpstreamStream) peerEnded() {
	if s.complete {
		s.end(nil)
	} else if s.onEnd != nil { // nobody sends the rest of the request
		s.c.reset(&s.flow, Cancel)
	}
}

// completed implements stream: the request was written whole.
func (s *UpstreamStream) completed() {
	if s.remoteEnded {
		s.end(nil)
	}
}

// ReadHead waits for what comes first, and hands it over in its buffer: the records of headers, and maybe the beginning
// of the body. Errors are those of ReadBody.
func (s *UpstreamStream) ReadHead() (head buffer.Handle, err error) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readerBusy = false
	defer func() { s.readerBusy = err == nil }() // otherwise it is about to read again
	for {
		switch {
		case s.head.Len() > 0:
			return s.head.Take(), s.endOf(true)
		case expired(s.readBy):
			return buffer.Handle{}, os.ErrDeadlineExceeded
		case s.inEnd != nil:
			return buffer.Handle{}, s.inEnd
		}
		s.wait(s.readBy)
	}
}

// Finish ends the use of a stream whose response was read whole, or that was not begun. It does not wait. The
// upstream has the time grace to end the stream; then the stream is reset. ended is called once when the stream
// is over, possibly before Finish returns, and must not use the stream.
func (s *UpstreamStream) Finish(grace time.Duration, ended func()) {
	s.c.mu.Lock()
	again := s.closed && s.err == nil && s.conn.inFlight > 0
	switch {
	case s.closed || !s.begun:
		s.end(net.ErrClosed)
		ended()
	case s.remoteEnded: // the upstream does not want the rest of the request
		s.c.reset(&s.flow, Cancel)
		ended()
	default:
		s.onEnd = ended
		s.grace = time.AfterFunc(grace, func() { _ = s.Close() })
	}
	s.drop(again)
}

// Close ends the stream. It resets the stream if the exchange is not complete. It does not wait, is safe for
// concurrent use, and may be called more than once.
func (s *UpstreamStream) Close() error {
	s.c.mu.Lock()
	if s.begun {
		s.c.reset(&s.flow, Cancel)
	} else {
		s.end(net.ErrClosed)
	}
	s.drop(false)
	return nil
}

// Kept returns what UpstreamOptions.Keep made for the stream. Whoever opened the stream calls it, before others may.
func (s *UpstreamStream) Kept() any {
	if s.kept == nil {
		s.kept = s.conn.o.Keep(s)
	}
	return s.kept
}

// drop drops what was not read, and unlocks mu. If again is true, the stream may have another request.
func (s *UpstreamStream) drop(again bool) {
	s.dropBody(net.ErrClosed)
	s.head.Put()
	stop := s.caughtUp
	s.caughtUp, s.behindSince = nil, noTime
	if again {
		s.conn.keep(s)
	} else {
		s.release()
	}
	s.c.mu.Unlock()
	if stop != nil {
		stop()
	}
	s.c.flushElsewhere()
}

// LocalAddr returns the local address of the stream's connection.
func (s *UpstreamStream) LocalAddr() net.Addr { return s.c.nc.LocalAddr() }

// RemoteAddr returns the upstream's address.
func (s *UpstreamStream) RemoteAddr() net.Addr { return s.c.nc.RemoteAddr() }

var _ net.Conn = (*UpstreamStream)(nil)
