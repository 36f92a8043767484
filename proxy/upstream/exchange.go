package upstream

import (
	"errors"
	"io"
	"os"
	"syscall"

	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// ErrStale is SendChecked's answer for a connection that the upstream had
// closed, or on which it had said something unasked. Nothing was sent.
var ErrStale = errors.New("the upstream closed the idle connection, or spoke unasked on it")

// exchangeState is one use of SendChecked, kept in the Conn so that it allocates nothing.
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

// CanSendChecked says whether SendChecked works here: there is a socket, and no TLS on it.
func (c *Conn) CanSendChecked() bool { return c.raw != nil && c.tls == nil }

// StillOpen looks at a connection taken with GetOptions.Unseen that is not
// used by SendChecked. False: the holder ends it with CloseUnsent.
func (c *Conn) StillOpen() bool { return c.checkIdle() == idleOpen }

// SendChecked looks whether the connection is still open and quiet, writes
// the parts, and waits for the first bytes of the response, which it reads into in. For
// the price of a plain write and read (three system calls: such a read tries
// once in vain before it waits) it closes the gap between a look and a write.
//
// sent is how much was taken, and parts are cut to what is left: less than all with a
// nil error means that the socket's buffer is full and that the rest is the
// client's to write. n bytes were read. ErrStale: nothing was sent; the holder ends
// it with CloseUnsent. Other errors are the socket's, io.EOF, or
// os.ErrDeadlineExceeded when the read deadline passed with all sent.
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

// tryExchange is called first to send, then whenever the socket may be readable.
// The runtime notes readability from before the first call on, so that no
// answer, however fast, is slept through. True ends the waiting.
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

// send writes and says whether all of it was taken.
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

// CloseUnsent ends a connection that SendChecked found stale. The pool counts
// what was heard as it counts its own looks, and learns from it.
func (c *Conn) CloseUnsent() {
	if !c.pool.drop(c) {
		return
	}
	c.pool.mu.Lock()
	c.pool.recordIdleState(c.idleState(), c.idleFor)
	c.pool.mu.Unlock()
	c.shut(false)
}
