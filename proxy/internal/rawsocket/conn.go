// Package rawsocket reads and writes sockets with system calls that the Go scheduler does
// not see.
//
// Package net announces every read and write to the scheduler, since a system call may
// block. A call on a non-blocking socket does not. But the runtime's monitor thread watches
// announced calls: it wakes every 20 microseconds while calls are in progress, takes
// processors away from them and hands them on. On a proxy's path, with six calls of a
// microsecond or two per request, that costs more than the calls' own bookkeeping;
// docs/explanation/performance.md has the figures. Package net still does waiting, deadlines and
// closing.
//
// Use Wrap on a connection just accepted or dialed, and use the result in its place. The
// Try functions are for callbacks of syscall.RawConn that do several things in one call.
package rawsocket

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is a stream connection. It can be used like any net.Conn, with one restriction: at
// most one concurrent Read, and one Write, WriteBoth or Writev.
type Conn struct {
	net.Conn
	raw syscall.RawConn
	in  readState
	out writeState
}

// readState is the state of one Read. It is part of Conn to avoid allocations.
type readState struct {
	callback func(fd uintptr) bool
	p        []byte
	n        int
	err      error
}

// writeState is the state of one Write, WriteBoth or Writev.
type writeState struct {
	callback func(fd uintptr) bool
	once     func(fd uintptr) bool // of TryWrite
	parts    [][]byte              // the remaining parts
	two      [2][]byte
	n        int
	err      error
	vecs     Vectors

	trying atomic.Bool // a system call is in flight
	reset  atomic.Bool // a call returned a reset

	acks    *time.Timer // checks for acknowledgements while a write waits; nil: none are needed
	waiting atomic.Bool // a write waits, and acks runs
}

// AckWithin is how long after a send its acknowledgement is looked for. Keep-alive probes
// detect a peer that vanishes later, but they do not run before all is acknowledged. ackEvery
// is the time between further checks of a write that still waits.
const (
	AckWithin = 5 * time.Second
	ackEvery  = time.Second
)

// EndUnacknowledged makes a write that waits for room end as if its deadline had passed, if
// Unacknowledged is true after AckWithin or later. The write then need not wait for its own
// deadline, which gives a slow peer much more time. Call it before the first write. It has no
// effect if c is no Conn.
func EndUnacknowledged(c net.Conn) {
	w, ok := c.(*Conn)
	if !ok {
		return
	}
	w.out.acks = time.AfterFunc(time.Hour, w.checkAcks)
	w.out.acks.Stop()
}

// checkAcks is called while a write waits.
func (c *Conn) checkAcks() {
	if !c.out.waiting.Load() {
		return
	}
	if Unacknowledged(c.Conn) {
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
	c.out.acks.Reset(ackEvery)
}

// beginWait is called before a write waits for room, and endWait after each write.
func (w *writeState) beginWait() {
	if w.acks != nil && !w.waiting.Swap(true) {
		w.acks.Reset(AckWithin)
	}
}

func (w *writeState) endWait() {
	if w.acks != nil && w.waiting.Load() {
		w.waiting.Store(false)
		w.acks.Stop()
	}
}

// Wrap returns a Conn over a TCP or unix connection, or c itself if there is no plain
// socket: in tests, and with TLS.
func Wrap(c net.Conn) net.Conn {
	var raw syscall.RawConn
	var err error
	switch s := c.(type) {
	case *net.TCPConn:
		raw, err = s.SyscallConn()
	case *net.UnixConn:
		raw, err = s.SyscallConn()
	default:
		return c
	}
	if err != nil {
		return c
	}
	w := &Conn{Conn: c, raw: raw}
	w.in.callback, w.out.callback, w.out.once = w.in.readable, w.out.writable, w.out.tryOnce
	return w
}

// Read implements net.Conn. It never takes a reset for the end of the stream, even if a
// write got it: the kernel reports a reset once.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Read(p)
	}
	r := &c.in
	r.p, r.n, r.err = p, 0, nil
	if err := c.raw.Read(r.callback); err != nil {
		r.p = nil
		return 0, err
	}
	r.p = nil
	return c.readResult(r.n, r.err)
}

// readResult returns the result of Read after a system call returned n and err.
func (c *Conn) readResult(n int, err error) (int, error) {
	switch {
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n > 0:
		return n, nil
	case c.out.sawReset():
		return 0, os.NewSyscallError("read", syscall.ECONNRESET)
	}
	return 0, io.EOF
}

// sawReset reports whether a write got a reset. It waits for a call in progress, which does
// not block.
func (w *writeState) sawReset() bool {
	for w.trying.Load() {
		runtime.Gosched()
	}
	return w.reset.Load()
}

// readable is called when there may be data; it returns true to end the wait.
func (r *readState) readable(fd uintptr) bool {
	r.n, r.err = TryRead(fd, r.p)
	return r.err != syscall.EAGAIN
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return c.Conn.Write(p)
	}
	return c.writeTwo(1, p, nil)
}

// writeTwo writes the first n of p and q.
func (c *Conn) writeTwo(n int, p, q []byte) (int, error) {
	w := &c.out
	w.two = [2][]byte{p, q}
	sent, err := c.Writev(w.two[:n])
	w.two = [2][]byte{}
	return sent, err
}

// Writev writes parts, with one system call if the socket accepts them. It cuts parts to
// what is left.
func (c *Conn) Writev(parts [][]byte) (int, error) {
	w := &c.out
	w.parts, w.n, w.err = parts, 0, nil
	err := c.raw.Write(w.callback)
	w.endWait()
	w.parts = nil
	if err == nil {
		err = w.err
	}
	return w.n, err
}

// TryWrite writes as much of p as the socket has room for, without a wait. It is used like Write.
func (c *Conn) TryWrite(p []byte) (int, error) {
	w := &c.out
	w.two[0] = p
	n, err := c.TryWritev(w.two[:1])
	w.two[0] = nil
	return n, err
}

// TryWritev is like TryWrite for parts, at least one of which is not empty. It cuts them to what is left.
func (c *Conn) TryWritev(parts [][]byte) (int, error) {
	w := &c.out
	w.parts, w.n, w.err = skipEmpty(parts), 0, nil
	err := c.raw.Write(w.once)
	w.parts = nil
	if err == nil {
		err = w.err
	}
	Consume(parts, w.n)
	return w.n, err
}

// tryOnce makes one system call and ends the wait.
func (w *writeState) tryOnce(fd uintptr) bool {
	n, err := w.writeOnce(fd)
	switch err {
	case nil:
		w.n = n
	case syscall.EAGAIN: // it has no room
	default:
		w.err = os.NewSyscallError("write", err)
	}
	return true
}

// writable is called when there may be room; it returns true to end the wait.
func (w *writeState) writable(fd uintptr) bool {
	for {
		w.parts = skipEmpty(w.parts)
		if len(w.parts) == 0 {
			return true
		}
		n, err := w.writeOnce(fd)
		switch {
		case err == syscall.EAGAIN:
			w.beginWait()
			return false
		case err != nil:
			w.err = os.NewSyscallError("write", err)
			return true
		}
		w.n += n
		Consume(w.parts, n)
	}
}

// writeOnce makes one system call. sawReset relies on the order of its statements.
func (w *writeState) writeOnce(fd uintptr) (int, error) {
	w.trying.Store(true)
	n, err := TryWritev(fd, w.parts, &w.vecs)
	if err == syscall.ECONNRESET {
		w.reset.Store(true)
	}
	w.trying.Store(false)
	return n, err
}

func skipEmpty(parts [][]byte) [][]byte {
	for len(parts) > 0 && len(parts[0]) == 0 {
		parts = parts[1:]
	}
	return parts
}

// Consume removes n bytes from the front of parts, in place, and returns how many bytes are
// left.
func Consume(parts [][]byte, n int) (left int) {
	for i, p := range parts {
		k := min(n, len(p))
		parts[i] = p[k:]
		n -= k
		left += len(p) - k
	}
	return left
}

// CloseWrite closes the sending side.
func (c *Conn) CloseWrite() error {
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite() // both types that Wrap accepts have it
}

// SyscallConn returns the socket for other calls.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return c.raw, nil }

// Unwrap returns the wrapped connection, for methods of package net's types, or c itself if
// it is not wrapped.
func Unwrap(c net.Conn) net.Conn {
	if w, ok := c.(*Conn); ok {
		return w.Conn
	}
	return c
}

// WriteBoth writes p and then q to c, with one system call if possible.
func WriteBoth(c net.Conn, p, q []byte) (int, error) {
	switch w, ok := c.(*Conn); {
	case len(q) == 0:
		return c.Write(p)
	case len(p) == 0:
		return c.Write(q)
	case ok:
		return w.writeTwo(2, p, q)
	}
	n, err := c.Write(p)
	if err != nil {
		return n, err
	}
	m, err := c.Write(q)
	return n + m, err
}

// Writev writes parts to c, with one system call if possible. It cuts parts to what is
// left.
func Writev(c net.Conn, parts [][]byte) (int, error) {
	if w, ok := c.(*Conn); ok {
		return w.Writev(parts)
	}
	sent := 0
	for i, p := range parts {
		n, err := c.Write(p)
		sent += n
		parts[i] = p[n:]
		if err != nil {
			return sent, err
		}
	}
	return sent, nil
}

// IsTimeout reports whether err is that of a deadline that has passed.
func IsTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
