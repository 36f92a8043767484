package proxy

import "syscall"

const (
	// holdAfter requests, one soon after the other, make a busy caller.
	holdAfter = 8
	// keepBelow callers' connections, each keeps its buffers while it waits for the next request, 28 KiB
	// at most. With more, the buffers that were used last serve whoever comes next.
	keepBelow = 128
	// manyActive is how many requests per processor have to be under way for it to be busy.
	manyActive = 8
)

// holds says whether the connection is held over the wait for its next request
// (sock.Conn.Hold), as one is whose caller was quick with its last requests. One that
// waits for long, which its deadline tells, is not: what a hold does not notice
// is found by the look that follows, and by the lot.
func (c *conn) holds() bool {
	if c.sock.Held() {
		return true
	}
	if !c.parks {
		return false
	}
	if c.quick < c.server.holdAfter {
		c.quick++
		return false
	}
	c.sock.Hold()
	return c.sock.Held()
}

// fillHeld is fillIdle while held. The buffers stay where there is room.
func (c *conn) fillHeld() error {
	for {
		if c.server.connections.Load() > keepBelow {
			c.restBuffers()
		}
		if err := c.sock.Await(); err != nil {
			c.quick = 0
			c.restBuffers()
			return err
		}
		c.readyBuffer()
		if n, err := c.sock.TryRead(c.in[c.w:]); err != syscall.EAGAIN {
			return c.gotIdle(n, err)
		}
	}
}

// endHold ends a hold for good, before something else reads or closes the connection, or a long wait.
func (c *conn) endHold() {
	if c.sock != nil {
		c.sock.EndHold()
	}
}

// manyUnderWay says whether so many requests are under way that the processors are busy.
func (c *conn) manyUnderWay() bool { return c.server.active.Load() >= c.server.many }
