package bridge

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// errClientGone is the error of a read if the client's stream or connection ended before the
// request did.
var errClientGone = errors.New("the client ended the stream")

// ClientStream is one request of an http.Handler as an HTTP/1.1 connection. It reads as the
// request; then Read blocks until the response was written whole (io.EOF) or the client left. The
// response is written to it in HTTP/1.1; header sections and bodies may come in any pieces.
//
// One goroutine, the handler's, writes. Any goroutine may read, set deadlines and call Close. The
// handler must call Finish before it returns.
type ClientStream struct {
	in             buffer
	requestHeaders []byte // not read yet
	w              http.ResponseWriter
	r              *http.Request
	ctl            *http.ResponseController
	local          net.Addr
	remote         net.Addr
	ahead          ReadAhead
	writeBy        writeDeadline

	out       response
	complete  atomic.Bool // the response was written whole
	closed    atomic.Bool
	broken    atomic.Bool   // the request's body did not end as announced
	bodyDone  chan struct{} // nil without a body
	stopWatch func() bool
}

// NewClientStream returns a stream for the arguments of a handler. local and remote are the
// addresses of its connection, and ahead is what the client may send of the request's body.
func NewClientStream(w http.ResponseWriter, r *http.Request, local, remote net.Addr, ahead ReadAhead) *ClientStream {
	c := &ClientStream{w: w, r: r, ctl: http.NewResponseController(w), local: local, remote: remote, ahead: ahead}
	c.in.init(ahead.buffer())
	c.writeBy.abort = func() { _ = c.ctl.SetWriteDeadline(past) }
	f := framingOf(r)
	section, ok := c.appendHeaders(make([]byte, 0, 1024), f)
	if declared := r.Header["Content-Length"]; ok && len(declared) > 0 && declared[0] == "0" {
		ok = endsEmpty(r)
	}
	if !ok {
		c.in.close(errClientGone)
		return c
	}
	c.requestHeaders = section
	c.stopWatch = context.AfterFunc(r.Context(), func() { c.in.discard(errClientGone) })
	if !f.Empty() {
		c.bodyDone = make(chan struct{})
		go c.copyBody(f)
	}
	return c
}

// appendHeaders appends the request's headers and prepares for its response. It reports false if
// they cannot be written safely.
func (c *ClientStream) appendHeaders(dst []byte, f http1.Framing) ([]byte, bool) {
	if c.out.websocket = opensWebSocket(c.r); c.out.websocket {
		c.out.reset(http.MethodGet)
		return appendHandshake(dst, c.r)
	}
	c.out.reset(c.r.Method)
	return appendRequest(dst, c.r, f)
}

// Finish ends all use of the handler's arguments. If it reports false, the response is not whole,
// and the handler must panic with http.ErrAbortHandler so that it does not look whole.
func (c *ClientStream) Finish() bool {
	if c.stopWatch != nil {
		c.stopWatch()
	}
	c.writeBy.set(time.Time{})
	c.in.discard(net.ErrClosed)
	_ = c.r.Body.Close()
	if c.bodyDone != nil {
		<-c.bodyDone
	}
	return c.complete.Load()
}

// ClientGone reports whether the client has left.
func (c *ClientStream) ClientGone() bool { return c.r.Context().Err() != nil }

// ResponseComplete reports whether the response was written whole.
func (c *ClientStream) ResponseComplete() bool { return c.complete.Load() }

// BodyBroken reports whether the request's body did not end as announced.
func (c *ClientStream) BodyBroken() bool { return c.broken.Load() }

// BodyDone returns a channel that is closed when the request's body has ended, in whatever way. It
// is nil if the request has no body.
func (c *ClientStream) BodyDone() <-chan struct{} { return c.bodyDone }

// Read reads the request.
func (c *ClientStream) Read(p []byte) (int, error) {
	if len(c.requestHeaders) > 0 && !c.closed.Load() {
		n := copy(p, c.requestHeaders)
		c.requestHeaders = c.requestHeaders[n:]
		return n, nil
	}
	return c.in.Read(p)
}

// Write takes the response. An error means that the client has left, that it reads nothing, or
// that p is not HTTP/1.1.
func (c *ClientStream) Write(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	if err := c.writeBy.begin(); err != nil {
		return 0, err
	}
	defer c.writeBy.end()
	n, err := c.out.write(c.w, p)
	switch {
	case err != nil:
		return n, err
	case c.out.state == atEnd:
		c.complete.Store(true)
		c.in.close(io.EOF)
		return n, nil
	case c.out.state == atHeaders:
		return n, nil // interim responses are sent at once; a flush would send final headers
	}
	if err := c.ctl.Flush(); err != nil {
		return n, err
	}
	return n, nil
}

// Close ends the stream. Unless the response was written whole, the client sees a broken stream.
// It is safe for concurrent use and may be called more than once.
func (c *ClientStream) Close() error {
	c.closed.Store(true)
	c.in.discard(net.ErrClosed)
	return nil
}

// SetReadDeadline makes reads end at t.
func (c *ClientStream) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline makes writes end at t. A write that was blocked until then ends the stream.
func (c *ClientStream) SetWriteDeadline(t time.Time) error {
	c.writeBy.set(t)
	return nil
}

// SetDeadline sets both deadlines.
func (c *ClientStream) SetDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	c.writeBy.set(t)
	return nil
}

// LocalAddr returns the local address of the stream's connection.
func (c *ClientStream) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the client's address.
func (c *ClientStream) RemoteAddr() net.Addr { return c.remote }

// copyBody makes the body readable, in the framing f, until its end or until Finish. It does not
// limit the client's time: the reader's deadlines do.
func (c *ClientStream) copyBody(f http1.Framing) {
	defer close(c.bodyDone)
	if c.out.websocket {
		f = http1.Framing{} // the bytes after the header section pass unchanged
	}
	switch err := c.in.fill(c.r.Body, f, func() http.Header { return c.r.Trailer }, c.ahead); {
	case errors.Is(err, ErrNotRead):
		_ = c.r.Body.Close() // drops what net/http holds
	case err != io.EOF:
		c.broken.Store(err != errClientGone && !errors.Is(err, net.ErrClosed))
		c.in.discard(errClientGone)
	case c.out.websocket:
		c.in.close(io.EOF)
	}
}

var _ net.Conn = (*ClientStream)(nil)
