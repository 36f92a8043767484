package sock

import (
	"iter"
	"os"
	"syscall"
)

// hold is a Conn's turn at reading that lasts over many reads.
//
// Package net forgets at the beginning of each read what the system told it of the socket
// before, and so has to look at it before it waits. On a connection whose peer asks, waits
// for the answer and asks again, that look finds nothing most of the time. Within
// one read of package net nothing is forgotten: RawConn.Read waits whenever its
// callback says that there was nothing, and what came since the last wait ends the next at once. So
// while a Conn is held it stays within such a callback, which is a coroutine beside the
// holder, and goes on only to wait. A switch to it and back costs a tenth of a look.
type hold struct {
	on    bool                 // the coroutine is within RawConn.Read
	leave bool                 // ... and is to come out
	look  bool                 // there may be something to read
	next  func() (error, bool) // on to the next wait, or out; nil: no coroutine
	stop  func()
}

// Hold makes the calling goroutine keep its turn at reading until Let, Read or EndHold, so that it can
// Await without a look before. Others that want to read, and Close, wait for that long. Only the
// holder may call Await, TryRead, Read, Write and its kin meanwhile. Held twice is held once. Where the read
// deadline has passed, or the Conn is closed, it is not held afterwards.
//
// Await does not notice an end of the stream that came together with the last bytes
// read. So whoever waits for an end, or for long, should do it by Read.
func (c *Conn) Hold() {
	h := &c.hold
	if h.on {
		return
	}
	if h.next == nil {
		h.begin(c)
	}
	h.enter()
}

// begin makes the coroutine. It yields nil within RawConn.Read, and outside
// of it what that said at its end.
func (h *hold) begin(c *Conn) {
	h.next, h.stop = iter.Pull(func(yield func(error) bool) {
		stays := true
		try := func(fd uintptr) bool {
			c.fd = fd
			stays = yield(nil)
			return !stays || h.leave
		}
		for stays {
			h.on = true
			err := c.raw.Read(try)
			h.on = false
			stays = stays && yield(err)
		}
	})
}

// enter begins a RawConn.Read, which forgets what was before: there may be something.
func (h *hold) enter() {
	h.leave, h.look = false, true
	_, _ = h.next() // an error is told by the first wait
}

// Held says whether the Conn is held.
func (c *Conn) Held() bool { return c.hold.on }

// Let ends a hold, so that others may read, and keeps what makes the next one cheap.
func (c *Conn) Let() {
	if h := &c.hold; h.on {
		h.leave = true
		_, _ = h.next()
	}
}

// EndHold ends a hold and gives back what it took. Whoever called Hold has to call it in the end,
// before Close. Without a hold it does nothing.
func (c *Conn) EndHold() {
	h := &c.hold
	if h.next != nil {
		h.stop()
		*h = hold{}
	}
}

// Await waits, while held, until there may be something to read; it returns at once when there
// may be something since the last TryRead. Errors are those of a Read; after one the Conn is no longer held.
func (c *Conn) Await() error {
	h := &c.hold
	if h.look {
		return nil
	}
	h.look = true
	err, _ := h.next()
	return err
}

// direct says whether the socket may be called without package net: a hold keeps it open, also
// for what nobody may write any more once Close was called.
func (c *Conn) direct() bool { return c.hold.on && !c.over.Load() }

// writeHeld is Write while direct, when nobody else reads, who could miss a reset that it is told of.
func (c *Conn) writeHeld(p []byte) (int, error) {
	n, err := TryWrite(c.fd, p)
	switch {
	case n == len(p):
		return n, nil
	case err == syscall.ECONNRESET:
		c.out.reset.Store(true)
		fallthrough
	case err != nil && err != syscall.EAGAIN:
		return 0, os.NewSyscallError("write", err)
	}
	m, err := c.writeTwo(1, p[n:], nil)
	return n + m, err
}

// TryRead reads once, while held, without a wait: syscall.EAGAIN when there is nothing. p must not be empty.
func (c *Conn) TryRead(p []byte) (int, error) {
	n, err := TryRead(c.fd, p)
	short := n > 0 && n < len(p)
	c.hold.look = err != syscall.EAGAIN && !short // an end and an error stay
	return n, err
}
