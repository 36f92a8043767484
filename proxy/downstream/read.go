package downstream

import (
	"io"
	"os"
	"syscall"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// Fill reads once into the free end of the buffer.
func (c *Conn) Fill() error {
	n, err := c.NC.Read(c.Free())
	c.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// FillBody is like Fill, with bytes of the request's body.
func (c *Conn) FillBody() error {
	n, err := c.ReadBody(c.Free())
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// FillIdle waits for the first bytes of a request. A connection with a descriptor waits without a
// buffer, which is most of the cost of an idle client.
func (c *Conn) FillIdle() error {
	if c.Stream != nil && !c.in.Owns() {
		if head := c.Stream.TakeHead(); head.Owns() {
			c.r, c.w = 0, c.in.HoldAll(&head)
			return nil
		}
	}
	if c.Raw == nil || c.TLS != nil {
		c.Buffers.Release()
		if !c.in.Owns() {
			c.in.Get(nil, buffer.Small)
		}
		return c.Fill()
	}
	c.once.err = nil
	if err := c.Raw.Read(c.idleRead); err != nil {
		c.ReleaseIdleBuffers() // a fault may have ended the wait before readIdle was called
		return err
	}
	return c.once.err
}

// readIdle is called when the descriptor may be readable, and reports whether it was.
func (c *Conn) readIdle(fd uintptr) bool {
	if !c.in.Owns() {
		c.Begin(c.readSize)
	}
	n, err := rawsocket.TryRead(fd, c.Free())
	c.w += n
	switch {
	case err == syscall.EAGAIN:
		c.ReleaseIdleBuffers()
		return false
	case err != nil:
		c.once.err = os.NewSyscallError("read", err)
	case n == 0:
		c.once.err = io.EOF
	}
	return true
}

// ReadNow reads once without waiting. It returns 0 and no error if nothing is there. It does not
// work under TLS.
func (c *Conn) ReadNow(p []byte) (int, error) {
	c.once.p, c.once.n, c.once.err = p, 0, nil
	err := c.Raw.Read(c.nowRead)
	c.once.p = nil
	switch {
	case rawsocket.IsTimeout(err) || err == nil && c.once.err == syscall.EAGAIN:
		return 0, nil
	case err == nil && c.once.err == nil && c.once.n == 0:
		return 0, io.EOF
	case err != nil:
		return 0, err
	case c.once.err != nil:
		return 0, c.once.err
	}
	return c.once.n, nil
}

// HasUnread reports whether bytes of the client wait in its socket, or in its stream. It returns false if
// that cannot be known.
func (c *Conn) HasUnread() (has bool) {
	if c.Stream != nil {
		return c.Stream.HasUnread()
	}
	if c.Raw == nil {
		return false
	}
	var b [1]byte
	_ = c.Raw.Control(func(fd uintptr) {
		n, _ := rawsocket.TryPeek(fd, b[:])
		has = n > 0
	})
	return has
}

// readOnce is the state of one read without waiting.
type readOnce struct {
	p   []byte
	n   int
	err error
}

func (r *readOnce) read(fd uintptr) bool {
	r.n, r.err = rawsocket.TryRead(fd, r.p)
	return true
}
