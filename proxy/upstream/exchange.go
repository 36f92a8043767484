package upstream

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// ErrStale is returned by SendChecked if the upstream had closed the connection, or had
// sent something without a request. Nothing was sent.
var ErrStale = errors.New("the upstream closed the idle connection, or sent stray bytes on it")

// exchangeState is the state of one SendChecked. It is part of Conn to avoid allocations.
type exchangeState struct {
	try   func(fd uintptr) bool
	out   [][]byte
	in    []byte
	begun bool
	sent  int
	n     int
	err   error
	vecs  rawsocket.Vectors
}

// CanSendChecked reports whether SendChecked works here: there is a socket, and no TLS on
// it.
func (c *Conn) CanSendChecked() bool { return c.raw != nil && c.tls == nil }

// StillOpen checks a connection taken with GetOptions.Unchecked and not used by
// SendChecked. If it returns false, end it with CloseUnsent.
func (c *Conn) StillOpen() bool { return c.checkIdle() == idleOpen }

// SendChecked checks whether the connection is still open and idle, writes the parts, and
// reads the first bytes of the response into in. It costs as much as a plain write and read
// (three system calls: such a read fails once before it waits). It leaves no gap between
// check and write.
//
// sent is the number of bytes written, and parts are cut to what is left. If that is less
// than all and err is nil, the socket's buffer is full and the caller must write the rest.
// n bytes were read. With ErrStale nothing was sent; end the Conn with CloseUnsent. Other
// errors are the socket's, io.EOF, or os.ErrDeadlineExceeded if the read deadline passed
// with all sent.
func (c *Conn) SendChecked(parts [][]byte, in []byte) (sent, n int, err error) {
	a := &c.exchange
	if a.try == nil {
		a.try = c.tryExchange
	}
	a.out, a.in, a.begun, a.sent, a.n, a.err = parts, in, false, 0, 0, nil
	err = c.raw.Read(a.try)
	a.out, a.in = nil, nil
	if err == nil {
		err = a.err
	}
	return a.sent, a.n, err
}

// tryExchange is called first to send, then whenever the socket may be readable. The
// runtime tracks readability from before the first call, so a fast response cannot be
// missed. It returns true to stop waiting.
func (c *Conn) tryExchange(fd uintptr) bool {
	a := &c.exchange
	if !a.begun {
		a.begun = true
		if c.peekedLen, c.peekErr = peek(fd, c.peeked[:]); c.peekErr != errNothingToRead {
			a.err = ErrStale
			return true
		}
		return !a.send(fd)
	}
	a.n, a.err = rawsocket.TryRead(fd, a.in)
	switch {
	case a.err == syscall.EAGAIN:
		a.n, a.err = 0, nil
		return false
	case a.err != nil:
		a.n, a.err = 0, os.NewSyscallError("read", a.err)
	case a.n == 0:
		a.err = io.EOF
	}
	return true
}

// send writes and reports whether all of it was accepted.
func (a *exchangeState) send(fd uintptr) bool {
	n, err := rawsocket.TryWritev(fd, a.out, &a.vecs)
	switch {
	case err == syscall.EAGAIN:
		return false
	case err != nil:
		a.err = os.NewSyscallError("write", err)
		return false
	}
	a.sent = n
	return rawsocket.Consume(a.out, n) == 0
}

// CloseUnsent ends a connection that SendChecked found stale. The pool counts it like those that
// its own checks find.
func (c *Conn) CloseUnsent() { c.closeIdled(c.idleState()) }

// peek reads what the socket has received, without consuming it and without waiting. It
// returns n > 0 bytes copied to p, n == 0 and a nil error at the end of the stream,
// errNothingToRead if there is nothing, or else the socket's error.
func peek(fd uintptr, p []byte) (int, error) {
	n, err := rawsocket.TryPeek(fd, p)
	if err == syscall.EAGAIN {
		err = errNothingToRead
	}
	return n, err
}
