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

// errClientGone is what reading gives when the client's stream or connection ended
// before the request did.
var errClientGone = errors.New("the client ended the stream")

// ClientStream is one request of an http.Handler as an HTTP/1.1 connection: it reads
// as the request, then blocks until the response was written whole (io.EOF) or
// the client left. The response is written to it in HTTP/1.1; header sections and bodies
// may come in any pieces.
//
// One goroutine, the handler's, writes; any may read, set deadlines and Close.
// Finish must be called, by the handler, before it returns.
type ClientStream struct {
	in             buffer
	requestHeaders []byte // of the request, not yet read
	w              http.ResponseWriter
	r              *http.Request
	ctl            *http.ResponseController
	local          net.Addr
	remote         net.Addr

	out       response
	complete  atomic.Bool // the response was
	closed    atomic.Bool
	broken    atomic.Bool   // the request's body was
	bodyDone  chan struct{} // nil without a body
	stopWatch func() bool
}

// NewClientStream takes what a handler got. local and remote are its connection's.
func NewClientStream(w http.ResponseWriter, r *http.Request, local, remote net.Addr) *ClientStream {
	c := &ClientStream{w: w, r: r, ctl: http.NewResponseController(w), local: local, remote: remote}
	c.in.init()
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

// appendHeaders writes the request's headers and readies for its response.
func (c *ClientStream) appendHeaders(dst []byte, f http1.Framing) ([]byte, bool) {
	if c.out.websocket = opensWebSocket(c.r); c.out.websocket {
		c.out.reset(http.MethodGet)
		return appendHandshake(dst, c.r)
	}
	c.out.reset(c.r.Method)
	return appendRequest(dst, c.r, f)
}

// Finish ends all use of the handler's arguments. False: the response is not
// whole and must not look so; the handler has to panic with http.ErrAbortHandler.
func (c *ClientStream) Finish() bool {
	if c.stopWatch != nil {
		c.stopWatch()
	}
	c.in.discard(net.ErrClosed)
	_ = c.r.Body.Close()
	if c.bodyDone != nil {
		<-c.bodyDone
	}
	return c.complete.Load()
}

// ClientGone says whether the client has left.
func (c *ClientStream) ClientGone() bool { return c.r.Context().Err() != nil }

// ResponseComplete reports whether the response was written whole.
func (c *ClientStream) ResponseComplete() bool { return c.complete.Load() }

// BodyBroken reports whether the request's body ended otherwise than was announced.
func (c *ClientStream) BodyBroken() bool { return c.broken.Load() }

// BodyDone is closed when the request's body has ended, in whatever way; nil: it has none.
func (c *ClientStream) BodyDone() <-chan struct{} { return c.bodyDone }

// Read gives the request.
func (c *ClientStream) Read(p []byte) (int, error) {
	if len(c.requestHeaders) > 0 && !c.closed.Load() {
		n := copy(p, c.requestHeaders)
		c.requestHeaders = c.requestHeaders[n:]
		return n, nil
	}
	return c.in.Read(p)
}

// Write takes the response. An error means that the client is gone, takes
// nothing, or that p is no HTTP/1.1.
func (c *ClientStream) Write(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.out.write(c.w, p)
	switch {
	case err != nil:
		return n, err
	case c.out.state == atEnd:
		c.complete.Store(true)
		c.in.close(io.EOF)
		return n, nil
	case c.out.state == atHeaders:
		return n, nil // interim responses are sent at once; a flush would make up a final one
	}
	if err := c.ctl.Flush(); err != nil {
		return n, err
	}
	return n, nil
}

// Close ends the stream: in a way that looks broken unless the response was
// written whole. It may be called at any time, more than once.
func (c *ClientStream) Close() error {
	c.closed.Store(true)
	c.in.discard(net.ErrClosed)
	return nil
}

// SetReadDeadline ends reads at t.
func (c *ClientStream) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline ends the stream at t when the client has not taken by then
// what was written before it.
func (c *ClientStream) SetWriteDeadline(t time.Time) error {
	if err := c.ctl.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// SetDeadline is both.
func (c *ClientStream) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// LocalAddr is the address of the connection that the stream is on.
func (c *ClientStream) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the client's.
func (c *ClientStream) RemoteAddr() net.Addr { return c.remote }

// copyBody makes the body readable, in the framing f, until its end or until
// Finish. Nothing bounds how long the client may take: the reader's deadlines do.
func (c *ClientStream) copyBody(f http1.Framing) {
	defer close(c.bodyDone)
	if c.out.websocket {
		f = http1.Framing{} // what follows the header section goes as it is
	}
	switch err := c.in.fill(c.r.Body, f, func() http.Header { return c.r.Trailer }); {
	case err != io.EOF:
		c.broken.Store(err != errClientGone && !errors.Is(err, net.ErrClosed))
		c.in.discard(errClientGone)
	case c.out.websocket:
		c.in.close(io.EOF)
	}
}

var _ net.Conn = (*ClientStream)(nil)
