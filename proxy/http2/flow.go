package http2

import (
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// flow is what the streams of clients and upstreams have in common: one direction is read, the other
// written, each within its window and its deadline. All of it is guarded by the connection's mu.
type flow struct {
	c    *link
	self stream

	cond    sync.Cond
	waiting int
	in      buffer.Handle // of the body: in[r:] is not read yet
	into    []byte        // of a reader that waits; into[:filled] has come
	filled  int
	blocked bool // it is in out.blocked, maybe since the message before

	readBy, writeBy time.Time // deadlines

	flowState
}

// flowState is what a flow forgets when it serves another request.
type flowState struct {
	id     uint32
	err    error // why the stream ended
	closed bool  // RST_STREAM was sent or received, or the connection ended

	early       bool          // the headers of the peer's message are still to come, and so no body may
	head        buffer.Handle // records of headers, and maybe the begin of the body, not read yet
	r           int           // in flow.in
	inEnd       error         // after the last byte of in
	tunnel      bool          // bytes pass unchanged
	whole       bool          // the body came whole, and can be read to its end
	trailers    []http1.Header
	left        int64 // of a body with a length; below 0: it has none
	owed        int   // bytes of the body that were not credited
	credit      int   // to be sent with the next WINDOW_UPDATE
	grant       int   // what the peer may still send
	remoteEnded bool  // the peer's message came whole
	readerBusy  bool  // the reader does something else; otherwise it waits for bytes, or is expected to
	caughtUp    func()
	behindSince time.Time // the Backlog counts it since then; zero: not

	window   int64  // what may be sent
	complete bool   // our message was written whole
	moved    uint64 // bytes of bodies, in both directions
}

// stream is a Stream or an UpstreamStream. All methods are called with mu held.
type stream interface {
	// end ends the stream because of err.
	end(err error)
	// peerEnded is called when the peer's message has come whole.
	peerEnded()
	// completed is called when our message was written whole.
	completed()
}

// init prepares s for its first request.
func (f *flow) init(c *link, self stream) {
	f.c, f.self = c, self
	f.cond.L = &c.mu
}

// open makes s a stream that was just opened. It is called with mu held.
func (f *flow) open(id uint32) {
	f.in.Resize(0)
	f.flowState = flowState{id: id, window: f.c.streamWindow, grant: f.c.peer.Window, readerBusy: !f.c.isUpstream}
}

// wake wakes all who wait for the stream. It is called with mu held.
func (f *flow) wake() {
	if f.waiting > 0 {
		f.cond.Broadcast()
	}
}

// wait releases mu until wake, or until by.
func (f *flow) wait(by time.Time) {
	if !by.IsZero() {
		f.c.wakeBy(by)
	}
	f.waiting++
	f.cond.Wait()
	f.waiting--
}

func expired(t time.Time) bool { return !t.IsZero() && time.Until(t) <= 0 }

// SetReadDeadline makes reads end at t.
func (f *flow) SetReadDeadline(t time.Time) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.readBy = t
	f.wake()
	return nil
}

// SetWriteDeadline makes writes end at t. A write that was blocked until then ends the stream.
func (f *flow) SetWriteDeadline(t time.Time) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.writeBy = t
	f.wake()
	return nil
}

// SetDeadline sets both deadlines.
func (f *flow) SetDeadline(t time.Time) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	f.readBy, f.writeBy = t, t
	f.wake()
	return nil
}
