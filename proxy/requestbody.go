package proxy

import (
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// bodyGrace is how long a client's body may be slower than the minimum rate.
const bodyGrace = 10 * time.Second

// body is a request's body: it streams from the client, and what passes is
// kept, while the caps allow, so that it can be sent again whole.
// One goroutine at a time uses it: the exchange's own, or its pump.
type body struct {
	c       *conn
	framing http1.Framing
	left    int64 // of a body with a length: bytes not yet read from the client
	chunked http1.Chunked
	started bool // a byte of it was taken from the client's stream
	ended   bool // all of it was
	total   int64
	began   instant // of reading, for the minimum rate

	keeping    bool
	replayLoss atomic.Uint32 // a policy.Replay: why not keeping; others may read it while the pump has the body
	kept       [][]byte      // what passed, in order; the first may be the client's own read buffer
	own        int           // kept[own:] are pooled chunks, charged by capacity
	keptLen    int64

	cursor  int    // next kept piece of the attempt being sent
	scratch []byte // for pieces that are not kept
}

// reset begins a body. What is kept of one is forgotten by close.
func (b *body) reset(f http1.Framing) {
	b.framing, b.left, b.total, b.cursor = f, f.Length, 0, 0
	b.started, b.ended, b.keeping = false, f.Kind == http1.BodyNone, true
	why := policy.ReplayWhole
	switch f.Kind {
	case http1.BodyLength:
		b.ended = f.Length == 0
		if f.Length > b.c.x.route.RetryBufferBytes {
			b.keeping, why = false, policy.ReplayTooLarge
		}
	case http1.BodyChunked:
		b.chunked.Reset()
	}
	if lost := uint32(why); b.replayLoss.Load() != lost { // a look costs less than to write
		b.replayLoss.Store(lost)
	}
}

// isComplete reports whether all of the body has come from the client.
func (b *body) isComplete() bool {
	return b.ended || !b.started && b.framing.Kind == http1.BodyLength && int64(b.c.w-b.c.r) >= b.left
}

// replay says whether the body can be sent again from its first byte.
func (b *body) replay() policy.Replay {
	switch {
	case !b.started || b.ended && b.keeping:
		return policy.ReplayWhole
	case !b.keeping:
		return policy.Replay(b.replayLoss.Load())
	}
	return policy.ReplayUnfinished
}

// ready says whether next gives a piece, or the end, without a wait.
func (b *body) ready() bool {
	return b.cursor < len(b.kept) || b.ended || b.c.r < b.c.w
}

// atEnd says whether the attempt being sent has had the whole body.
func (b *body) atEnd() bool { return b.ended && b.cursor >= len(b.kept) }

// rewind starts the next attempt at the first byte.
func (b *body) rewind() { b.cursor = 0 }

// next gives the next piece of the attempt being sent: what was kept first,
// then what the client sends, waiting for it no longer than wait (0: as long
// as the client's body may take). io.EOF at the end. The piece is valid until
// the next call.
func (b *body) next(wait time.Duration) ([]byte, error) {
	if b.cursor < len(b.kept) {
		b.cursor++
		return b.kept[b.cursor-1], nil
	}
	if b.ended {
		return nil, io.EOF
	}
	if !b.keeping {
		b.release()
	}
	piece, err := b.read(wait)
	b.cursor = len(b.kept)
	if err == nil && b.total > b.limit() {
		return nil, errBodyTooLarge
	}
	return piece, err
}

// nextNow is next for a body with a length, without a wait: an empty piece
// says that there is nothing yet.
func (b *body) nextNow() ([]byte, error) {
	c := b.c
	if b.cursor < len(b.kept) || b.ended || c.r < c.w {
		return b.next(0)
	}
	if c.secure != nil || c.raw == nil {
		return nil, nil // what lies between cannot be looked at without a wait
	}
	if !b.keeping {
		b.release()
	}
	dst := b.room()
	dst = dst[:min(int64(len(dst)), b.left)]
	n, err := c.readNow(dst)
	b.cursor = len(b.kept)
	if n == 0 {
		return nil, err
	}
	if !b.started {
		b.started, b.began = true, b.c.server.now()
	}
	b.countRead(n)
	b.commit(n)
	if b.total > b.limit() {
		return nil, errBodyTooLarge
	}
	return dst[:n], nil
}

func (b *body) limit() int64 {
	if m := b.c.x.route.MaxBodyBytes; m > 0 {
		return m
	}
	return 1<<63 - 1
}

func (b *body) read(wait time.Duration) ([]byte, error) {
	if !b.started {
		b.started, b.began = true, b.c.server.now()
	}
	if b.framing.Kind == http1.BodyChunked {
		return b.readChunked(wait)
	}
	return b.readLength(wait)
}

// readLength takes the next piece of a body with a length: from the read
// buffer, else straight into where it is kept.
func (b *body) readLength(wait time.Duration) ([]byte, error) {
	c := b.c
	if n := int(min(int64(c.w-c.r), b.left)); n > 0 {
		piece := c.in[c.r : c.r+n : c.r+n]
		c.r += n
		b.countRead(n)
		b.keepAlias(piece)
		return piece, nil
	}
	dst := b.room()
	dst = dst[:min(int64(len(dst)), b.left)]
	n, err := b.receive(dst, wait)
	if n == 0 {
		return nil, err
	}
	b.countRead(n)
	b.commit(n)
	return dst[:n], nil
}

func (b *body) countRead(n int) {
	b.total += int64(n)
	b.left -= int64(n)
	b.ended = b.left == 0
}

// readChunked takes the next piece of a chunked body out of the read buffer,
// filling that as needed. The head must have been detached from the buffer.
func (b *body) readChunked(wait time.Duration) ([]byte, error) {
	c := b.c
	for {
		n, data, err := b.chunked.Next(c.in[c.r:c.w])
		c.r += n
		if err != nil {
			return nil, err
		}
		if len(data) > 0 {
			if data, err = b.joinChunks(len(data)); err != nil {
				return nil, err
			}
			b.total += int64(len(data))
			b.keepCopy(data)
			b.ended = b.chunked.Done()
			return data, nil
		}
		if b.chunked.Done() {
			b.ended = true
			return nil, io.EOF
		}
		if n > 0 {
			continue
		}
		c.compact()
		m, err := b.receive(c.in[c.w:], wait)
		if m == 0 {
			return nil, err
		}
		c.w += m
	}
}

// joinChunks moves the payload that the read buffer still holds up to the n
// bytes before c.r, so that tiny chunks do not become a write upstream each.
func (b *body) joinChunks(n int) ([]byte, error) {
	c := b.c
	start, end := c.r-n, c.r
	for c.r < c.w && !b.chunked.Done() {
		took, data, err := b.chunked.Next(c.in[c.r:c.w])
		c.r += took
		if err != nil {
			return nil, err
		}
		end += copy(c.in[end:], data)
	}
	return c.in[start:end:end], nil
}

// receive reads from the client: within wait, or within what the idle timeout
// and the minimum rate leave.
func (b *body) receive(p []byte, wait time.Duration) (int, error) {
	c := b.c
	until, slack := b.readDeadline(b.c.server.now()), time.Duration(0)
	if wait > 0 {
		until = b.c.server.now().Add(wait)
	} else if c.x.pumping {
		slack = time.Second
	}
	c.setRead(until, slack)
	if c.x.stop.Load() {
		return 0, errStopped
	}
	n, err := c.nc.Read(p)
	switch {
	case n > 0:
		return n, nil
	case err == nil:
		return 0, io.ErrNoProgress
	case isTimeout(err) && c.x.stop.Load():
		return 0, errStopped
	case isTimeout(err) && b.c.server.now().Before(until):
		c.readAt = longAgo // a late word that meant a wait before this one
		return b.receive(p, wait)
	case isTimeout(err) && wait > 0:
		return 0, err
	case isTimeout(err):
		return 0, errBodyTooSlow
	case errors.Is(err, io.EOF):
		return 0, errBodyCut
	}
	return 0, errClientGone
}

// readDeadline is when a client that sends nothing more is too slow.
func (b *body) readDeadline(now instant) instant {
	until := now.Add(365 * 24 * time.Hour)
	if idle := b.c.x.bodyIdle(); idle > 0 {
		until = now.Add(idle)
	}
	if rate := b.c.x.set.MinBodyRate; rate > 0 && !b.c.x.grpc {
		due := b.began.Add(bodyGrace + time.Duration(float64(b.total)/float64(rate)*float64(time.Second)))
		if due.Before(until) {
			until = due
		}
	}
	return until
}

// finish reads the rest of the body only to keep it, so that it can be sent
// again. It stops, without error, when the body can no longer be kept, and
// when it will not be whole by until, or is too slow for any body; zero: it may take as
// long as any.
func (b *body) finish(until instant) error {
	b.cursor = len(b.kept)
	heard := b.c.server.now()
	for b.started && !b.ended && b.keeping {
		wait := time.Duration(0)
		if !until.IsZero() {
			if wait = min(b.timeToFinish(until), minRateSample, b.readDeadline(heard).Sub(b.c.server.now())); wait <= 0 {
				return nil
			}
		}
		had := b.total
		if _, err := b.next(wait); err != nil && err != io.EOF && !isTimeout(err) {
			return err
		}
		if b.total > had {
			heard = b.c.server.now()
		}
	}
	return nil
}

// minRateSample is how long a body is read before its pace tells anything.
const minRateSample = time.Second

// timeToFinish is how long the rest of the body may be waited for until then; none where
// it would not be whole at the pace that it had so far.
func (b *body) timeToFinish(until instant) time.Duration {
	now := b.c.server.now()
	left, took := until.Sub(now), now.Sub(b.began)
	if b.framing.Kind == http1.BodyLength && took > minRateSample && float64(b.left)*took.Seconds() > float64(b.total)*left.Seconds() {
		return 0
	}
	return left
}

// keepAlias keeps a piece that lies in the client's read buffer, which stays
// as it is until the exchange ends.
func (b *body) keepAlias(piece []byte) {
	if b.keeping && len(b.kept) == 0 {
		b.kept = append(b.kept, piece)
		b.own = 1
		b.keptLen += int64(len(piece))
		return
	}
	b.keepCopy(piece)
}

// keepCopy keeps a copy of data.
func (b *body) keepCopy(data []byte) {
	for len(data) > 0 && b.keeping {
		dst := b.room()
		if !b.keeping {
			return
		}
		n := copy(dst, data)
		b.commit(n)
		data = data[n:]
	}
}

// room gives where the next bytes can be read to: the free end of the last
// kept chunk, or a new one, or scratch when nothing is kept.
func (b *body) room() []byte {
	if b.keeping && b.keptLen >= b.c.x.route.RetryBufferBytes {
		b.stopKeeping(policy.ReplayTooLarge)
	}
	if b.keeping && len(b.kept) > b.own {
		if last := b.kept[len(b.kept)-1]; len(last) < cap(last) {
			return last[len(last):cap(last)]
		}
	}
	if b.keeping {
		if chunk := b.newChunk(); chunk != nil {
			return chunk
		}
	}
	if b.scratch == nil {
		b.scratch = getBuffer(largeBuffer)
	}
	return b.scratch
}

// newChunk adds an empty kept chunk, sized by what is still to come.
func (b *body) newChunk() []byte {
	size := mediumBuffer
	if b.left > mediumBuffer || b.keptLen >= 2*mediumBuffer {
		size = largeBuffer
	} else if b.framing.Kind == http1.BodyLength && b.left <= smallBuffer {
		size = smallBuffer
	}
	if !b.c.server.replay.take(size) {
		b.stopKeeping(policy.ReplayBufferFull)
		return nil
	}
	chunk := getBuffer(size)
	b.kept = append(b.kept, chunk[:0])
	return chunk
}

// commit says that n bytes were put into what room gave.
func (b *body) commit(n int) {
	if !b.keeping {
		return
	}
	last := len(b.kept) - 1
	b.kept[last] = b.kept[last][:len(b.kept[last])+n]
	b.keptLen += int64(n)
	if b.keptLen > b.c.x.route.RetryBufferBytes {
		b.stopKeeping(policy.ReplayTooLarge)
	}
}

// stopKeeping gives up keeping. The memory goes back at the next read or at the end,
// since the piece being sent may lie in it.
func (b *body) stopKeeping(why policy.Replay) {
	b.keeping = false
	b.replayLoss.Store(uint32(why))
}

// release gives the kept bytes back.
func (b *body) release() {
	for i, chunk := range b.kept {
		if i >= b.own {
			b.c.server.replay.give(cap(chunk))
			putBuffer(chunk)
		}
		b.kept[i] = nil
	}
	b.kept, b.own, b.keptLen = b.kept[:0], 0, 0
}

// close gives all memory back at the end of the exchange.
func (b *body) close() {
	if len(b.kept) > 0 {
		b.release()
	}
	if b.scratch != nil {
		putBuffer(b.scratch)
		b.scratch = nil
	}
}
