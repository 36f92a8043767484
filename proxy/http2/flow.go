package http2

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// flow is what the streams of clients and upstreams have in common: one direction is read, the other
// written, each within its window and its deadline. All of it is guarded by the connection's mu.
type flow struct {
	c    *link
	id   uint32
	self stream

	cond    sync.Cond
	waiting int
	err     error // why the stream ended
	closed  bool  // RST_STREAM was sent or received, or the connection ended

	head        []byte // HTTP/1.1 headers, not read yet
	in          []byte // of the body, in HTTP/1.1: in[r:] is not read yet
	r           int
	inEnd       error // after the last byte of in
	tunnel      bool  // bytes pass unchanged
	framed      http1.Framing
	left        int64 // of a body with a length
	owed        int   // bytes of the body that were not credited
	credit      int   // to be sent with the next WINDOW_UPDATE
	grant       int   // what the peer may still send
	remoteEnded bool  // the peer's message came whole
	behind      bool  // the Backlog counts it
	caughtUp    func()

	window   int64 // what may be sent
	complete bool  // our message was written whole
	blocked  bool  // it is in out.blocked

	readBy, writeBy   time.Time
	readTime, wriTime *time.Timer
}

// stream is a Stream or an UpstreamStream. All methods are called with mu held.
type stream interface {
	// end ends the stream because of err.
	end(err error)
	// faulty is called before the stream is reset because its body is not what was announced.
	faulty()
	// peerEnded is called when the peer's message has come whole.
	peerEnded()
	// completed is called when our message was written whole.
	completed()
}

// init makes s a stream that was just opened. It is called with mu held.
func (s *flow) init(c *link, id uint32, self stream) {
	s.c, s.id, s.self, s.window, s.grant = c, id, self, c.streamWindow, c.perStream
	s.cond.L = &c.mu
}

// wake wakes all who wait for the stream. It is called with mu held.
func (s *flow) wake() {
	if s.waiting > 0 {
		s.cond.Broadcast()
	}
}

// wait releases mu until wake, or until by.
func (s *flow) wait(by time.Time, timer **time.Timer) {
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

func (s *flow) timeUp() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.wake()
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// SetReadDeadline makes reads end at t.
func (s *flow) SetReadDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readBy = t
	s.wake()
	return nil
}

// SetWriteDeadline makes writes end at t. A write that was blocked until then ends the stream.
func (s *flow) SetWriteDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.writeBy = t
	s.wake()
	return nil
}

// SetDeadline sets both deadlines.
func (s *flow) SetDeadline(t time.Time) error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.readBy, s.writeBy = t, t
	s.wake()
	return nil
}
