package http2

import (
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// Stream is one request of a client. It reads as the request in HTTP/1.1; then Read blocks until the
// response was written whole (io.EOF) or the client left. The response is written to it in HTTP/1.1;
// header sections and bodies may come in any pieces.
//
// One goroutine, the worker's, writes. Any goroutine may read, set deadlines and call Close. Nothing of it
// may be used after Options.Serve has returned.
type Stream struct {
	c  *Conn
	id uint32

	response response // used by the worker

	// All below is guarded by c.mu.
	cond    sync.Cond
	waiting int
	err     error // why the stream ended
	closed  bool  // RST_STREAM was sent or received, or the connection ended
	done    chan struct{}

	head   []byte // of the request, not read yet
	in     []byte // of its body, in HTTP/1.1: in[r:] is not read yet
	r      int
	inEnd  error // after the last byte of in
	tunnel bool  // bytes pass unchanged
	framed http1.Framing
	left   int64 // of a body with a length
	owed   int   // bytes of the body that were not credited
	credit int   // to be sent with the next WINDOW_UPDATE
	grant  int   // what the client may still send

	grpc          bool        // a gRPC call
	resetByClient bool        // the client has reset it
	vain          *time.Timer // with mustEnd
	queued        bool        // it waits for a worker
	mustEnd       bool        // its body is declared to be empty and has not ended: it is not served before
	remoteEnded   bool        // the request came whole
	bodyDone      chan struct{}
	bodyBroken    bool // the request did not end as announced
	complete      bool // the response was written whole
	blocked       bool // it is in out.blocked
	behind        bool // the Backlog counts it
	caughtUp      func()

	window            int64 // what may be sent
	readBy, writeBy   time.Time
	readTime, wriTime *time.Timer
}

// newStream returns a stream that was just opened. It is called with mu held.
func (c *Conn) newStream(id uint32) *Stream {
	s := &Stream{c: c, id: id, window: c.streamWindow, grant: c.o.Window}
	s.cond.L = &c.mu
	return s
}

// begin takes the request's headers. It is called with mu held.
func (s *Stream) begin(f *fields, ends bool) Code {
	var q request
	if !q.parse(f) {
		return ProtocolError
	}
	q.contradicts = q.contradicts || ends && q.length > 0
	s.framed = http1.Framing{}
	switch {
	case q.opensWebSocket():
		if s.tunnel, s.left = true, -1; ends {
			s.inEnd = io.EOF
		}
	case q.contradicts: // it is refused
	case ends && q.length == 0:
		s.framed = http1.Framing{Kind: http1.BodyLength}
	case ends:
	case q.length >= 0:
		s.framed, s.left = http1.Framing{Kind: http1.BodyLength, Length: q.length}, q.length
		s.mustEnd = q.length == 0
	default:
		s.framed, s.left = http1.Framing{Kind: http1.BodyChunked}, -1
	}
	s.remoteEnded, s.grpc = ends, q.grpc
	s.response.begin(q.method, q.opensWebSocket())
	s.head = q.appendHead(buffer.Get(buffer.Small)[:0], f, s.framed)
	return NoError
}

// wake wakes all who wait for the stream. It is called with mu held.
func (s *Stream) wake() {
	if s.waiting > 0 {
		s.cond.Broadcast()
	}
}

// wait releases mu until wake, or until by.
func (s *Stream) wait(by time.Time, timer **time.Timer) {
	if !by.IsZero() {
		d := max(time.Until(by), 0)
		if *timer == nil {
			*timer = time.AfterFunc(d, s.timeUp)
		} else {
			(*timer).Reset(d)
		}
		defer (*timer).Stop()
	}
	s.waiting++
	s.cond.Wait()
	s.waiting--
}

func (s *Stream) timeUp() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.wake()
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// end ends the stream because of err: what was not read is dropped. It is called with mu held.
func (s *Stream) end(err error) {
	if s.closed {
		return
	}
	s.closed, s.err = true, err
	s.c.open--
	if !s.remoteEnded {
		s.bodyBroken = s.bodyBroken || s.err == errGone && !s.complete
		s.remoteEnded = true
		s.endBody()
	}
	s.dropBody(err)
	if s.done != nil {
		close(s.done)
	}
	s.wake()
	switch { // nobody serves it
	case s.queued:
		s.queued = false
		s.c.queued = slices.DeleteFunc(s.c.queued, func(o *Stream) bool { return o == s })
		s.c.forget(s)
	case s.mustEnd:
		s.mustEnd = false
		s.vain.Stop()
		s.c.forget(s)
	}
}

// endBody notes that no more of the body will come.
func (s *Stream) endBody() {
	if s.bodyDone != nil {
		close(s.bodyDone)
	}
}

// dropBody drops what was not read. It is called with mu held.
func (s *Stream) dropBody(err error) {
	if s.inEnd == nil {
		s.inEnd = err
	}
	s.in, s.r = nil, 0
	if s.head != nil {
		s.head = s.head[:0]
	}
	s.wake()
}

// receive takes a piece of the body, of a frame of n bytes. It is called with mu held.
func (s *Stream) receive(p []byte, n int, ends bool) {
	if s.grant -= n; s.grant < 0 {
		s.fault(FlowControlError)
		return
	}
	s.credit += n - len(p) // padding
	if s.left >= 0 {
		if s.left -= int64(len(p)); s.left < 0 || ends && s.left > 0 {
			s.fault(ProtocolError)
			return
		}
	}
	if s.inEnd != nil { // nobody reads it
		s.credit += len(p)
	} else {
		s.owed += len(p)
		if s.framed.Kind == http1.BodyChunked {
			s.push(len(p)+20, func(dst []byte) []byte { return http1.AppendChunk(dst, p) })
		} else {
			s.push(len(p), func(dst []byte) []byte { return append(dst, p...) })
		}
	}
	if ends {
		s.ended(nil)
	}
	s.wake()
}

// fault resets the stream because its body is not what was announced. It is called with mu held.
func (s *Stream) fault(code Code) {
	s.bodyBroken = true
	s.c.reset(s, code)
}

// ended takes the end of the body, with its trailers if there are any. It is called with mu held.
func (s *Stream) ended(trailers *fields) {
	s.remoteEnded = true
	switch {
	case s.inEnd != nil:
	case s.tunnel:
		s.inEnd = io.EOF
	case s.framed.Kind == http1.BodyChunked && trailers != nil:
		s.push(1024, func(dst []byte) []byte { return appendTrailers(dst, trailers) })
	case s.framed.Kind == http1.BodyChunked:
		s.push(8, func(dst []byte) []byte { return http1.AppendLastChunk(dst, nil) })
	}
	s.endBody()
	s.wake()
	if s.mustEnd {
		s.mustEnd = false
		s.vain.Stop()
		s.c.start(s)
	}
}

// emptyWithin is how long a client may take to end a stream whose body is declared to be empty.
const emptyWithin = 10 * time.Second

// endInVain ends a stream whose body was declared to be empty and did not end.
func (s *Stream) endInVain() {
	s.c.mu.Lock()
	if s.mustEnd {
		s.fault(ProtocolError)
	}
	s.c.mu.Unlock()
	s.c.flushElsewhere()
}

func (s *Stream) receiveTrailers(f *fields) {
	if s.left > 0 {
		s.fault(ProtocolError)
		return
	}
	s.ended(f)
}

// push adds to what can be read.
func (s *Stream) push(n int, appendTo func([]byte) []byte) {
	if s.r > 0 && len(s.in)+n > cap(s.in) {
		s.in = s.in[:copy(s.in, s.in[s.r:])]
		s.r = 0
	}
	s.in = appendTo(s.in)
}

// Read reads the request.
func (s *Stream) Read(p []byte) (int, error) {
	s.c.mu.Lock()
	n, stop, err := s.read(p)
	s.c.mu.Unlock()
	if stop != nil {
		stop()
	}
	if n > 0 {
		s.c.flushCredit()
	}
	return n, err
}

// read is Read with mu held. The caller calls stop, if it is not nil, without mu.
func (s *Stream) read(p []byte) (n int, stop func(), err error) {
	for {
		switch {
		case expired(s.readBy):
			return 0, nil, os.ErrDeadlineExceeded
		case len(s.head) > 0:
			n := copy(p, s.head)
			if n == len(s.head) {
				buffer.Put(s.head[:0])
				s.head = nil
			} else {
				s.head = s.head[:copy(s.head, s.head[n:])]
			}
			return n, nil, nil
		case s.r < len(s.in):
			n := copy(p, s.in[s.r:])
			if s.r += n; s.r == len(s.in) {
				if s.in, s.r = s.in[:0], 0; cap(s.in) > buffer.Large {
					s.in = nil // a stream that pauses holds little
				}
			}
			s.took()
			if s.behind && len(s.in)-s.r <= s.c.behindFrom() {
				stop, s.behind, s.caughtUp = s.caughtUp, false, nil
			}
			return n, stop, nil
		case s.inEnd != nil:
			return 0, nil, s.inEnd
		}
		s.wait(s.readBy, &s.readTime)
	}
}

// took credits bytes that were read. It is called with mu held.
func (s *Stream) took() {
	n := max(0, s.owed-(len(s.in)-s.r)) // what is unread may be all content, or sizes of chunks too
	s.owed -= n
	if s.credit += n; s.remoteEnded || s.closed {
		return
	}
	if credit := s.credit; credit >= s.c.o.Window/4 || s.grant == 0 && credit > 0 {
		s.credit = 0
		s.grant += credit
		s.c.control(16, func(dst []byte) []byte { return appendWindowUpdate(dst, s.id, credit) })
	}
}

// behindFrom is how many bytes a reader may be behind before the Backlog counts it.
func (c *Conn) behindFrom() int { return c.o.Window / 2 }

// flushCredit writes credit that Read gave. It never blocks the reader of a body for the client.
func (c *Conn) flushCredit() { c.flushElsewhere() }

// count has the Backlog count the stream if its reader is behind. It is called without mu.
func (s *Stream) count() {
	if s.c.o.Backlog == nil {
		return
	}
	s.c.mu.Lock()
	is := !s.behind && !s.closed && len(s.in)-s.r > s.c.behindFrom()
	s.behind = s.behind || is
	s.c.mu.Unlock()
	if !is {
		return
	}
	stop := s.c.o.Backlog.Wait(int64(s.c.o.Window*s.growth()), s.giveUp)
	s.c.mu.Lock()
	if s.behind && s.caughtUp == nil {
		s.caughtUp, stop = stop, nil
	}
	s.c.mu.Unlock()
	if stop != nil {
		stop() // it caught up meanwhile
	}
}

// growth returns how many times larger a body may be here than the client sent it: a byte becomes a chunk
// of six.
func (s *Stream) growth() int {
	if s.framed.Kind == http1.BodyChunked {
		return 6
	}
	return 1
}

// giveUp drops the body because its reader is behind and memory is short.
func (s *Stream) giveUp() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if len(s.in)-s.r <= s.c.behindFrom() {
		return false
	}
	s.dropBody(s.c.o.NotRead)
	return true
}

// Write takes the response. An error means that the client has left, that it reads nothing, or that p is
// not HTTP/1.1.
func (s *Stream) Write(p []byte) (int, error) {
	n, err := s.response.write(s, p)
	s.c.flush()
	return n, err
}

// writeData writes a piece of the response's body, and ends the response if ends is true.
func (s *Stream) writeData(p []byte, ends bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 || ends {
		if err := s.writeErr(); err != nil {
			return err
		}
		n := int(max(0, min(int64(len(p)), s.window, c.window, frameSize, int64(roomForData-len(c.out.pending))))) // SETTINGS may make a window negative
		if n == 0 && len(p) > 0 {
			if err := s.waitToWrite(s.canWrite); err != nil {
				return err
			}
			continue
		}
		last := ends && n == len(p)
		var flags byte
		if last {
			flags = flagEndStream
		}
		dst := appendFrame(c.room(frameHeader+n), frameData, flags, s.id, n)
		c.out.pending = append(dst, p[:n]...)
		s.window -= int64(n)
		c.window -= int64(n)
		if p = p[n:]; c.o.Wrote != nil {
			c.o.Wrote(n)
		}
		if last {
			s.completed()
			return nil
		}
	}
	return nil
}

func (s *Stream) writeErr() error {
	switch {
	case s.c.err != nil:
		return errGone
	case s.closed && s.err != nil:
		return s.err
	case s.closed, s.complete:
		return net.ErrClosed
	}
	return nil
}

// waitToWrite waits until can reports true, for room or a window, until the write deadline. It is called
// with mu held, and lets what waits be written.
func (s *Stream) waitToWrite(can func() bool) error {
	if expired(s.writeBy) {
		s.c.reset(s, Cancel)
		return os.ErrDeadlineExceeded
	}
	s.c.mu.Unlock()
	s.c.flush()
	s.c.mu.Lock()
	if s.closed || s.c.err != nil || can() {
		return nil
	}
	if !s.blocked { // after the flush, which wakes all that are
		s.blocked = true
		s.c.out.blocked = append(s.c.out.blocked, s)
	}
	s.wait(s.writeBy, &s.wriTime)
	if expired(s.writeBy) && !can() && !s.closed {
		s.c.reset(s, Cancel)
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (s *Stream) canWrite() bool { return s.window > 0 && s.c.window > 0 && s.hasRoom() }

func (s *Stream) hasRoom() bool { return len(s.c.out.pending) < roomForData }

// writeHeaders writes a header section, interim, final or trailers, and ends the response if ends is true.
func (s *Stream) writeHeaders(status int, headers []http1.Header, ends bool, skip func(*http1.Header) bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := s.writeErr(); err != nil {
			return err
		}
		if s.hasRoom() {
			break
		}
		if err := s.waitToWrite(s.hasRoom); err != nil {
			return err
		}
	}
	block := c.encode(status, headers, skip)
	dst := c.room(len(block) + frameHeader*(1+len(block)/frameSize))
	kind := byte(frameHeaders)
	var flags byte
	if ends {
		flags = flagEndStream
	}
	for {
		n := min(len(block), frameSize)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		dst = append(appendFrame(dst, kind, flags, s.id, n), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			break
		}
		kind, flags = frameContinuation, 0
	}
	c.out.pending = dst
	if ends {
		s.completed()
	}
	return nil
}

// completed notes that the response was written whole. It is called with mu held.
func (s *Stream) completed() {
	s.complete = true
	if s.inEnd == nil {
		s.inEnd = io.EOF
	}
	s.wake()
}

// finished ends a stream whose worker has returned.
func (c *Conn) finished(s *Stream) {
	c.mu.Lock()
	switch {
	case s.closed:
	case !s.complete:
		c.reset(s, InternalError)
	case !s.remoteEnded: // the rest of the body is not wanted (RFC 9113 section 8.1)
		s.end(nil)
		c.sendReset(s.id, NoError)
	}
	s.end(nil)
	stop := s.caughtUp
	s.caughtUp, s.behind = nil, false
	c.running--
	c.forget(s)
	c.startQueued()
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
	c.flush()
}

// forget forgets a stream that has ended and is not served. It is called with mu held.
func (c *Conn) forget(s *Stream) {
	if s.head != nil {
		buffer.Put(s.head[:0])
		s.head = nil
	}
	if delete(c.streams, s.id); len(c.streams) == 0 {
		c.idleSince = time.Now()
		if c.isOver() {
			c.endReading()
		}
	}
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

// BodyDone returns a channel that is closed when the request's body has ended, in whatever way. It is nil
// if the request has no body.
func (s *Stream) BodyDone() <-chan struct{} {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.bodyDone == nil && !s.framed.Empty() {
		s.bodyDone = make(chan struct{})
		if s.remoteEnded {
			close(s.bodyDone)
		}
	}
	return s.bodyDone
}

// ClientGone reports whether the client has left. s may be nil.
func (s *Stream) ClientGone() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.closed && !s.complete
}

// ResponseComplete reports whether the response was written whole.
func (s *Stream) ResponseComplete() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.complete
}

// BodyBroken reports whether the request's body did not end as announced.
func (s *Stream) BodyBroken() bool {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	return s.bodyBroken
}

// HasBody reports whether the request has a body, be it an empty one.
func (s *Stream) HasBody() bool { return !s.framed.Empty() || s.tunnel }

// IsGRPC reports whether the request is a gRPC call.
func (s *Stream) IsGRPC() bool { return s.grpc }

// Reset ends the stream: its client gets code, and whoever serves it an error. It is safe for concurrent
// use.
func (s *Stream) Reset(code Code) {
	s.c.mu.Lock()
	s.c.reset(s, code)
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

// SetReadDeadline makes reads end at t.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readBy = t
	s.wake()
	return nil
}

// SetWriteDeadline makes writes end at t. A write that was blocked until then ends the stream.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.writeBy = t
	s.wake()
	return nil
}

// SetDeadline sets both deadlines.
func (s *Stream) SetDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readBy, s.writeBy = t, t
	s.wake()
	return nil
}

// LocalAddr returns the local address of the stream's connection.
func (s *Stream) LocalAddr() net.Addr { return s.c.o.Local }

// RemoteAddr returns the client's address.
func (s *Stream) RemoteAddr() net.Addr { return s.c.o.Remote }

var _ net.Conn = (*Stream)(nil)
