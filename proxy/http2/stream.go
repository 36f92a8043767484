package http2

import (
	"io"
	"net"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// Stream is one request of a client. It reads as the record of the request's headers, which
// http1.Request.Compose reads, and the body; then Read blocks until the response was written whole (io.EOF)
// or the client left.
//
// One goroutine, the worker's, writes. Any goroutine may read, set deadlines and call Close. After
// Options.Serve has returned, it may serve another request of its connection.
type Stream struct {
	flow
	conn *Conn

	kept      any  // used by the worker
	discarded bool // likewise

	streamState // guarded by mu of the connection
}

// streamState is what a Stream forgets when it serves another request.
type streamState struct {
	counted       bool        // in Conn.open
	grpc          bool        // a gRPC call
	hasBody       bool        // the request has one, which may turn out to be empty
	websocket     bool        // the request opens a WebSocket
	opened        bool        // its response opened a WebSocket; set by the worker before that is written
	resetByClient bool        // the client has reset it
	vain          *time.Timer // with mustEnd
	queued        bool        // it waits for a worker
	mustEnd       bool        // its body is declared to be empty and has not ended: it is not served before
	done          chan struct{}
	leftAt        time.Time // when it ended before its response was complete; zero: it has not
}

// begin takes the request's headers. It is called with mu held.
func (s *Stream) begin(f *fields, ends bool) Code {
	var q request
	if !q.parse(f) {
		return ProtocolError
	}
	q.contradicts = q.contradicts || ends && q.length > 0
	switch {
	case q.opensWebSocket():
		if s.tunnel, s.websocket, s.left = true, true, -1; ends {
			s.inEnd = io.EOF
		}
	case q.contradicts: // it is refused
	case ends:
	default:
		s.hasBody, s.left = q.length != 0, q.length
		s.mustEnd = q.length == 0
	}
	s.remoteEnded, s.whole, s.grpc = ends, ends, q.grpc
	s.head = buffer.GetEmpty(buffer.Small)
	s.head.Appended(q.appendRecord(s.head.Bytes(), f, ends))
	return NoError
}

// end ends the stream because of err: what was not read is dropped. It is called with mu held.
func (s *Stream) end(err error) {
	if s.closed {
		return
	}
	if s.closed, s.err = true, err; !s.complete {
		s.leftAt = time.Now()
	}
	s.uncount()
	s.remoteEnded = true
	s.dropBody(err)
	if s.done != nil {
		close(s.done)
	}
	s.wake()
	switch { // nobody serves it
	case s.queued:
		s.queued = false
		s.conn.queued = slices.DeleteFunc(s.conn.queued, func(o *Stream) bool { return o == s })
		s.conn.forget(s)
	case s.mustEnd:
		s.mustEnd = false
		s.vain.Stop()
		s.conn.forget(s)
	}
}

// uncount notes that the client may open another stream: this one was reset, or both sides have ended it
// (RFC 9113 section 5.1.2).
func (s *Stream) uncount() {
	if s.counted {
		s.counted = false
		s.conn.open--
	}
}

// peerEnded implements stream: the request came whole.
func (s *Stream) peerEnded() {
	if s.complete {
		s.uncount()
	}
	s.wake()
	if s.mustEnd {
		s.mustEnd = false
		s.vain.Stop()
		s.conn.start(s)
	}
}

// emptyWithin is how long a client may take to end a stream whose body is declared to be empty.
const emptyWithin = 10 * time.Second

// endInVain ends a stream whose body was declared to be empty and did not end.
func (c *Conn) endInVain(id uint32) {
	c.mu.Lock()
	if s := c.streams[id]; s != nil && of(s).mustEnd {
		c.reset(s, ProtocolError)
	}
	c.mu.Unlock()
	c.flushElsewhere()
}

// completed implements stream: the response was written whole.
func (s *Stream) completed() {
	if s.remoteEnded {
		s.uncount()
	}
	if s.inEnd == nil && !s.opened { // a WebSocket's client goes on until its own end
		s.inEnd = io.EOF
	}
	s.wake()
}

// finished ends a stream whose worker has returned.
func (c *Conn) finished(s *Stream) {
	c.mu.Lock()
	if s.complete {
		c.earned++
	}
	switch {
	case s.closed:
	case !s.complete:
		c.reset(&s.flow, InternalError)
	case !s.remoteEnded: // the rest of the body is not wanted (RFC 9113 section 8.1)
		s.end(nil)
		c.sendReset(s.id, NoError)
	}
	s.end(nil)
	stop := s.caughtUp
	s.caughtUp, s.behindSince = nil, noTime
	c.running--
	c.forget(s)
	c.startQueued()
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.flush()
}

// Kept returns what Options.Keep made for the stream. The worker calls it first, before others may.
func (s *Stream) Kept() any {
	if s.kept == nil {
		s.kept = s.conn.o.Keep(s)
	}
	return s.kept
}

// TakeHead hands over the record of the request's headers in its buffer, if nothing of it was read. If there is none,
// Read tells why. It does not wait.
func (s *Stream) TakeHead() buffer.Handle {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.head.Len() > 0 && !expired(s.readBy) {
		return s.head.Take()
	}
	return buffer.Handle{}
}

// ID returns the stream's number.
func (s *Stream) ID() uint32 { return s.id }

// Done returns a channel that is closed when the client has left.
func (s *Stream) Done() <-chan struct{} {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.done == nil {
		s.done = make(chan struct{})
		if s.closed {
			close(s.done)
		}
	}
	return s.done
}

// ClientGone reports whether the client has left.
func (s *Stream) ClientGone() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.closed && !s.complete
}

// LeftAt returns when the stream ended before its response was complete, which whoever serves it may notice later;
// now if it has not.
func (s *Stream) LeftAt() time.Time {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.leftAt.IsZero() {
		return time.Now()
	}
	return s.leftAt
}

// ResponseComplete reports whether the response was written whole.
func (s *Stream) ResponseComplete() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.complete
}

// HasUnread reports whether bytes of the body came that were not read yet.
func (s *Stream) HasUnread() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.unread() > 0 || s.filled > 0 // what has come to a reader that did not run yet
}

// Moved returns how many bytes of bodies passed, in both directions.
func (s *Stream) Moved() uint64 {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.moved
}

// HasBody reports whether the request has a body, be it an empty one.
func (s *Stream) HasBody() bool { return s.hasBody || s.tunnel }

// IsGRPC reports whether the request is a gRPC call.
func (s *Stream) IsGRPC() bool { return s.grpc }

// Reset ends the stream: its client gets code, and whoever serves it an error. It is safe for concurrent
// use.
func (s *Stream) Reset(code Code) {
	s.c.mu.Lock()
	s.c.reset(&s.flow, code)
	s.c.mu.Unlock()
	s.c.flushElsewhere()
}

// Close ends the stream. Unless the response was written whole, the client sees a broken stream. It is
// safe for concurrent use and may be called more than once.
func (s *Stream) Close() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.dropBody(net.ErrClosed)
	return nil
}

// LocalAddr returns the local address of the stream's connection.
func (s *Stream) LocalAddr() net.Addr { return s.conn.o.Local }

// RemoteAddr returns the client's address.
func (s *Stream) RemoteAddr() net.Addr { return s.conn.o.Remote }

var _ net.Conn = (*Stream)(nil)
