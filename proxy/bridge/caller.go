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

// errGone is what reading gives when the caller's stream or connection ended
// before the request did.
var errGone = errors.New("the caller ended the stream")

// Caller is one request of an http.Handler as an HTTP/1.1 connection: it reads
// as the request, then blocks until the response was written whole (io.EOF) or
// the caller left. The response is written to it in HTTP/1.1; heads and bodies
// may come in any pieces.
//
// One goroutine, the handler's, writes; any may read, set deadlines and Close.
// Finish must be called, by the handler, before it returns.
type Caller struct {
	in     buffer
	head   []byte // of the request, not yet read
	w      http.ResponseWriter
	r      *http.Request
	ctl    *http.ResponseController
	local  net.Addr
	remote net.Addr

	out      response
	whole    atomic.Bool // the response was
	closed   atomic.Bool
	broken   atomic.Bool   // the request's body was
	bodyDone chan struct{} // nil without a body
	unwatch  func() bool
}

// NewCaller takes what a handler got. local and remote are its connection's.
func NewCaller(w http.ResponseWriter, r *http.Request, local, remote net.Addr) *Caller {
	c := &Caller{w: w, r: r, ctl: http.NewResponseController(w), local: local, remote: remote}
	c.in.init()
	f := framingOf(r)
	head, ok := c.appendHead(make([]byte, 0, 1024), f)
	if declared := r.Header["Content-Length"]; ok && len(declared) > 0 && declared[0] == "0" {
		ok = endsEmpty(r)
	}
	if !ok {
		c.in.close(errGone)
		return c
	}
	c.head = head
	c.unwatch = context.AfterFunc(r.Context(), func() { c.in.drop(errGone) })
	if !f.Empty() {
		c.bodyDone = make(chan struct{})
		go c.copyBody(f)
	}
	return c
}

// appendHead writes the request's head and readies for its response.
func (c *Caller) appendHead(dst []byte, f http1.Framing) ([]byte, bool) {
	if c.out.websocket = opensWebSocket(c.r); c.out.websocket {
		c.out.reset(http.MethodGet)
		return appendHandshake(dst, c.r)
	}
	c.out.reset(c.r.Method)
	return appendRequest(dst, c.r, f)
}

// Finish ends all use of the handler's arguments. False: the response is not
// whole and must not look so; the handler has to panic with http.ErrAbortHandler.
func (c *Caller) Finish() bool {
	if c.unwatch != nil {
		c.unwatch()
	}
	c.in.drop(net.ErrClosed)
	_ = c.r.Body.Close()
	if c.bodyDone != nil {
		<-c.bodyDone
	}
	return c.whole.Load()
}

// Gone says whether the caller has left.
func (c *Caller) Gone() bool { return c.r.Context().Err() != nil }

// Whole reports whether the response was written whole.
func (c *Caller) Whole() bool { return c.whole.Load() }

// Broken reports whether the request's body ended otherwise than was announced.
func (c *Caller) Broken() bool { return c.broken.Load() }

// BodyDone is closed when the request's body has ended, in whatever way; nil: it has none.
func (c *Caller) BodyDone() <-chan struct{} { return c.bodyDone }

// Read gives the request.
func (c *Caller) Read(p []byte) (int, error) {
	if len(c.head) > 0 && !c.closed.Load() {
		n := copy(p, c.head)
		c.head = c.head[n:]
		return n, nil
	}
	return c.in.Read(p)
}

// Write takes the response. An error means that the caller is gone, takes
// nothing, or that p is no HTTP/1.1.
func (c *Caller) Write(p []byte) (int, error) {
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	n, err := c.out.write(c.w, p)
	switch {
	case err != nil:
		return n, err
	case c.out.state == atEnd:
		c.whole.Store(true)
		c.in.close(io.EOF)
		return n, nil
	case c.out.state == atHead:
		return n, nil // interim responses are sent at once; a flush would make up a final one
	}
	if err := c.ctl.Flush(); err != nil {
		return n, err
	}
	return n, nil
}

// Close ends the stream: in a way that looks broken unless the response was
// written whole. It may be called at any time, more than once.
func (c *Caller) Close() error {
	c.closed.Store(true)
	c.in.drop(net.ErrClosed)
	return nil
}

// SetReadDeadline ends reads at t.
func (c *Caller) SetReadDeadline(t time.Time) error {
	c.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline ends the stream at t when the caller has not taken by then
// what was written before it.
func (c *Caller) SetWriteDeadline(t time.Time) error {
	if err := c.ctl.SetWriteDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// SetDeadline is both.
func (c *Caller) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// LocalAddr is the address of the connection that the stream is on.
func (c *Caller) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the caller's.
func (c *Caller) RemoteAddr() net.Addr { return c.remote }

// copyBody makes the body readable, in the framing f, until its end or until
// Finish. Nothing bounds how long the caller may take: the reader's deadlines do.
func (c *Caller) copyBody(f http1.Framing) {
	defer close(c.bodyDone)
	if c.out.websocket {
		f = http1.Framing{} // what follows the head goes as it is
	}
	switch err := c.in.fill(c.r.Body, f, func() http.Header { return c.r.Trailer }); {
	case err != io.EOF:
		c.broken.Store(err != errGone && !errors.Is(err, net.ErrClosed))
		c.in.drop(errGone)
	case c.out.websocket:
		c.in.close(io.EOF)
	}
}

var _ net.Conn = (*Caller)(nil)
