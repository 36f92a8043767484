package http2

import (
	"runtime"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// What waits to be written to the peer, in bytes. A stream waits for room below roomForData; frames
// that answer the peer's own may exceed it, up to mostUnwritten, beyond which the connection ends: its
// peer sends and does not read.
const (
	roomForData   = 64 << 10
	mostUnwritten = 256 << 10
)

// rounds is how many writes one goroutine does for others before another one takes over, so that its own
// request is not held up.
const rounds = 4

// output is what waits to be written to the peer. All fields are guarded by link.mu. Whoever appends calls
// link.flush after it has unlocked.
type output struct {
	pending []byte // nil while there is nothing
	spare   []byte // what was written last, for reuse
	writing bool   // a goroutine writes
	blocked []*flow
}

// flush writes what waits, unless another goroutine does. It yields once, so that what other streams have
// to say goes with the same write.
func (c *link) flush() {
	c.mu.Lock()
	if c.out.writing || len(c.out.pending) == 0 || c.err != nil {
		c.mu.Unlock()
		return
	}
	c.out.writing = true
	c.mu.Unlock()
	runtime.Gosched()
	if c.writeOut(rounds) {
		go func() {
			for c.writeOut(rounds) {
			}
		}()
	}
}

// flushElsewhere is flush for the goroutine that reads: it never waits for the peer.
func (c *link) flushElsewhere() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.writing || len(c.out.pending) == 0 || c.err != nil {
		return
	}
	c.out.writing = true
	go func() {
		for c.writeOut(rounds) {
		}
	}()
}

// writeOut writes up to n times what waits. It reports whether there is more to write.
func (c *link) writeOut(n int) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(c.out.pending) > 0 && c.err == nil; n-- {
		if n == 0 {
			return true
		}
		p := c.out.pending
		c.out.pending, c.out.spare = c.out.spare, nil
		c.mu.Unlock()
		c.extendWrite()
		_, err := c.nc.Write(p)
		c.mu.Lock()
		if c.out.spare = p[:0]; cap(p) > buffer.Large {
			c.out.spare = nil
		}
		if err != nil {
			c.fail(err)
			break
		}
		c.wakeBlocked()
	}
	c.out.writing = false
	if c.isOver() {
		c.endReading()
	}
	if len(c.streams) == 0 {
		c.releaseOut()
	}
	return false
}

// releaseOut returns the buffers of an idle connection. It is called with mu held, while nobody writes.
func (c *link) releaseOut() {
	if len(c.out.pending) == 0 && c.out.pending != nil {
		buffer.Put(c.out.pending)
		c.out.pending = nil
	}
	if c.out.spare != nil {
		buffer.Put(c.out.spare)
		c.out.spare = nil
	}
}

// room returns the output with room for n more bytes. It is called with mu held.
func (c *link) room(n int) []byte {
	if c.out.pending == nil {
		c.out.pending = buffer.Get(max(n, buffer.Small))[:0]
	}
	c.out.pending = buffer.Grow(c.out.pending, n)
	return c.out.pending
}

// control appends a frame that answers one of the peer's. It is called with mu held.
func (c *link) control(n int, appendTo func([]byte) []byte) {
	if c.err != nil {
		return
	}
	if len(c.out.pending) > mostUnwritten {
		c.fail(refuse(EnhanceYourCalm, "the peer sends and does not read"))
		return
	}
	c.out.pending = appendTo(c.room(n))
}

// extendWrite keeps the write deadline between one and two write timeouts away. Only the goroutine that
// writes calls it.
func (c *link) extendWrite() {
	now := time.Now()
	if c.writeTimeout <= 0 || c.writeBy.Sub(now) >= c.writeTimeout {
		return
	}
	c.writeBy = now.Add(2 * c.writeTimeout)
	_ = c.nc.SetWriteDeadline(c.writeBy)
}

// wakeBlocked wakes the streams that wait for room. It is called with mu held.
func (c *link) wakeBlocked() {
	for i, s := range c.out.blocked {
		s.blocked = false
		s.wake()
		c.out.blocked[i] = nil
	}
	c.out.blocked = c.out.blocked[:0]
}
