package http2

import (
	"runtime"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// What waits to be written to the peer, in bytes. A stream waits for room below roomForData; frames
// that answer the peer's own may exceed it, up to mostUnwritten, beyond which the connection ends: its
// peer sends and does not read. What streams write fits in a buffer of the pool: larger ones, as garbage, made
// GETs of 1 MiB cost twice the CPU.
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
	pending buffer.Handle
	current buffer.Handle // is being written
	sent    int           // of current
	beside  int           // bytes that are written behind current from elsewhere
	since   time.Time     // when current was begun
	before  int64         // bytes that were written before current
	spare   buffer.Handle // what was written last, for reuse
	writing bool          // a goroutine writes
	blocked []*flow
}

// at returns the place of the next byte among all that are written. It is called with mu held.
func (o *output) at() int64 { return o.handed() + int64(o.waits()) }

// handed returns the place of the first byte that nobody has begun to write. It is called with mu held, while a
// goroutine writes.
func (o *output) handed() int64 { return o.before + int64(o.current.Len()+o.beside) }

// waits returns how many bytes nobody has begun to write. It is called with mu held.
func (o *output) waits() int { return o.pending.Len() }

// left returns what is left to write of the current piece. It is called with mu held.
func (o *output) left() []byte { return o.current.Bytes()[o.sent:] }

// begin makes what is pending the current piece. It is called with mu held.
func (o *output) begin(now time.Time) {
	o.current, o.pending = o.pending.Take(), o.spare.Take()
	o.sent, o.since = 0, now
}

// wrote ends the current piece, which was written, and keeps its buffer for what is to come, unless it is large. It is
// called with mu held.
func (o *output) wrote() {
	o.before += int64(o.current.Len())
	o.spare.Put() // after a direct write that was cut, there may be one
	if o.spare = o.current.Take(); o.spare.Cap() > buffer.Large {
		o.spare.Put()
	}
	o.spare.Resize(0)
}

// beginWriting makes the caller the one who writes. It returns false if another goroutine is, or there is
// nothing to write. It is called with mu held.
func (c *link) beginWriting() bool {
	if c.out.writing || c.out.waits() == 0 || c.err != nil {
		return false
	}
	c.out.writing = true
	return true
}

// flush writes what waits, unless another goroutine does. It yields once if there are other streams, so that what
// they have to say goes with the same write. For an upstream it never waits, since what it writes may be of others.
func (c *link) flush() {
	if c.isUpstream && c.tryWrite == nil {
		c.flushElsewhere()
		return
	}
	c.mu.Lock()
	ok, others := c.beginWriting(), len(c.streams) > 1
	c.mu.Unlock()
	if !ok {
		return
	}
	if others {
		runtime.Gosched()
	}
	if c.writeOut(rounds, c.tryWrite) {
		go c.writeAll()
	}
}

// flushElsewhere is flush for the goroutine that reads: it never waits for the peer.
func (c *link) flushElsewhere() {
	c.mu.Lock()
	ok := c.beginWriting()
	c.mu.Unlock()
	if ok {
		go c.writeAll()
	}
}

func (c *link) writeAll() {
	for c.writeOut(rounds, nil) {
	}
}

// writeOut writes up to n times what waits, by write if it is not nil. It reports whether there is more to
// write.
func (c *link) writeOut(n int, write func([]byte) (int, error)) (more bool) {
	if write == nil {
		write = c.nc.Write
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; (c.out.waits() > 0 || c.out.current.Owns()) && c.err == nil; n-- {
		if n == 0 {
			return true
		}
		c.nextOut()
		p := c.out.left()
		c.mu.Unlock()
		wrote, err := write(p)
		c.mu.Lock()
		if c.out.sent += wrote; err == nil && wrote < len(p) {
			return true // the peer has no room now
		}
		if err != nil {
			c.writeFailed(err)
			break
		}
		c.out.wrote()
		c.wakeBlocked()
	}
	c.endWriting()
	return false
}

// endWriting notes that the goroutine that wrote does not any more. It is called with mu held.
func (c *link) endWriting() {
	c.out.writing = false
	if c.isOver() {
		c.endReading()
	}
	if len(c.streams) == 0 {
		c.releaseOut()
	}
}

// writeFailed ends the connection because a write failed, and with it the writing. An upstream may have responded
// before, so what has come from it is read first. It is called with mu held.
func (c *link) writeFailed(err error) {
	c.out.writing = false
	if !c.isUpstream {
		c.fail(err)
	}
	if c.err != nil || c.unwritable != nil {
		return
	}
	c.unwritable, c.unwritableAt, c.lingering = err, time.Now(), true
	for _, s := range c.streams {
		s.wake()
	}
	c.side.unsent(c.out.before + int64(c.out.sent))
	c.releaseOut()
	_ = c.nc.SetReadDeadline(c.unwritableAt.Add(readAfterwards))
}

// readAfterwards is how long what an upstream has sent is read after a write to it failed.
const readAfterwards = time.Second

// nextOut makes what is pending the current piece, if there is none. It is called with mu held.
func (c *link) nextOut() {
	now := c.now()
	if !c.out.current.Owns() {
		c.out.begin(now)
	}
	c.extendWrite(now)
}

// releaseOut returns the buffers of a connection that is idle, or that writes nothing any more. It is called with mu
// held, while nobody writes.
func (c *link) releaseOut() {
	if c.unwritable != nil || c.err != nil {
		c.out.pending.Resize(0)
		c.out.current.Put()
	}
	if c.out.waits() == 0 {
		c.out.pending.Put()
	}
	c.out.spare.Put()
}

// room returns the output with room for n more bytes. It is called with mu held.
func (c *link) room(n int) []byte {
	if !c.out.pending.Owns() {
		c.out.pending = buffer.GetEmpty(max(n, buffer.Small))
	}
	c.out.pending.Grow(n)
	return c.out.pending.Bytes()
}

// control appends a frame that answers one of the peer's. It is called with mu held.
func (c *link) control(n int, appendTo func([]byte) []byte) {
	if c.err != nil || c.unwritable != nil {
		return
	}
	if c.out.waits() > mostUnwritten {
		c.fail(refuse(EnhanceYourCalm, "the peer sends and does not read"))
		return
	}
	c.out.pending.Appended(appendTo(c.room(n)))
}

// extendWrite keeps the write deadline between one and two write timeouts away. Only the goroutine that
// writes calls it, with mu held.
func (c *link) extendWrite(now time.Time) {
	if c.peer.WriteTimeout <= 0 || c.leavesSoon || c.writeBy.Sub(now) >= c.peer.WriteTimeout {
		return
	}
	c.writeBy = now.Add(2 * c.peer.WriteTimeout)
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
