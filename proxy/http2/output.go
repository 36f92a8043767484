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
func (l *link) beginWriting() bool {
	if l.out.writing || l.out.waits() == 0 || l.err != nil {
		return false
	}
	l.out.writing = true
	return true
}

// flush writes what waits, unless another goroutine does. It yields once if there are other streams, so that what
// they have to say goes with the same write. For an upstream it never waits, since what it writes may be of others.
func (l *link) flush() {
	if l.isUpstream && l.tryWrite == nil {
		l.flushElsewhere()
		return
	}
	l.mu.Lock()
	ok, others := l.beginWriting(), len(l.streams) > 1
	l.mu.Unlock()
	if !ok {
		return
	}
	if others {
		runtime.Gosched()
	}
	if l.writeOut(rounds, l.tryWrite) {
		go l.writeAll()
	}
}

// flushElsewhere is flush for the goroutine that reads: it never waits for the peer.
func (l *link) flushElsewhere() {
	l.mu.Lock()
	ok := l.beginWriting()
	l.mu.Unlock()
	if ok {
		go l.writeAll()
	}
}

func (l *link) writeAll() {
	for l.writeOut(rounds, nil) {
	}
}

// writeOut writes up to n times what waits, by write if it is not nil. It reports whether there is more to
// write.
func (l *link) writeOut(n int, write func([]byte) (int, error)) (more bool) {
	if write == nil {
		write = l.nc.Write
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; (l.out.waits() > 0 || l.out.current.Owns()) && l.err == nil; n-- {
		if n == 0 {
			return true
		}
		l.nextOut()
		p := l.out.left()
		l.mu.Unlock()
		wrote, err := write(p)
		l.mu.Lock()
		if l.out.sent += wrote; err == nil && wrote < len(p) {
			return true // the peer has no room now
		}
		if err != nil {
			l.writeFailed(err)
			break
		}
		l.out.wrote()
		l.wakeBlocked()
	}
	l.endWriting()
	return false
}

// endWriting notes that the goroutine that wrote does not any more. It is called with mu held.
func (l *link) endWriting() {
	l.out.writing = false
	if l.isOver() {
		l.endReading()
	}
	if len(l.streams) == 0 {
		l.releaseOut()
	}
}

// writeFailed ends the connection because a write failed, and with it the writing. An upstream may have responded
// before, so what has come from it is read first. It is called with mu held.
func (l *link) writeFailed(err error) {
	l.out.writing = false
	if !l.isUpstream {
		l.fail(err)
	}
	if l.err != nil || l.unwritable != nil {
		return
	}
	l.unwritable, l.unwritableAt, l.lingering = err, time.Now(), true
	for _, s := range l.streams {
		s.wake()
	}
	l.side.unsent(l.out.before + int64(l.out.sent))
	l.releaseOut()
	_ = l.nc.SetReadDeadline(l.unwritableAt.Add(readAfterwards))
}

// readAfterwards is how long what an upstream has sent is read after a write to it failed.
const readAfterwards = time.Second

// nextOut makes what is pending the current piece, if there is none. It is called with mu held.
func (l *link) nextOut() {
	now := l.now()
	if !l.out.current.Owns() {
		l.out.begin(now)
	}
	l.extendWrite(now)
}

// releaseOut returns the buffers of a connection that is idle, or that writes nothing any more. It is called with mu
// held, while nobody writes.
func (l *link) releaseOut() {
	if l.unwritable != nil || l.err != nil {
		l.out.pending.Resize(0)
		l.out.current.Put()
	}
	if l.out.waits() == 0 {
		l.out.pending.Put()
	}
	l.out.spare.Put()
}

// room returns the output with room for n more bytes. It is called with mu held.
func (l *link) room(n int) []byte {
	if !l.out.pending.Owns() {
		l.out.pending = buffer.GetEmpty(max(n, buffer.Small))
	}
	l.out.pending.Grow(n)
	return l.out.pending.Bytes()
}

// control appends a frame that answers one of the peer's. It is called with mu held.
func (l *link) control(n int, appendTo func([]byte) []byte) {
	if l.err != nil || l.unwritable != nil {
		return
	}
	if l.out.waits() > mostUnwritten {
		l.fail(refuse(EnhanceYourCalm, "the peer sends and does not read"))
		return
	}
	l.out.pending.Appended(appendTo(l.room(n)))
}

// extendWrite keeps the write deadline between one and two write timeouts away. Only the goroutine that
// writes calls it, with mu held.
func (l *link) extendWrite(now time.Time) {
	if l.peer.WriteTimeout <= 0 || l.leavesSoon || l.writeBy.Sub(now) >= l.peer.WriteTimeout {
		return
	}
	l.writeBy = now.Add(2 * l.peer.WriteTimeout)
	_ = l.nc.SetWriteDeadline(l.writeBy)
}

// wakeBlocked wakes the streams that wait for room. It is called with mu held.
func (l *link) wakeBlocked() {
	for i, s := range l.out.blocked {
		s.blocked = false
		s.wake()
		l.out.blocked[i] = nil
	}
	l.out.blocked = l.out.blocked[:0]
}
