package request

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// BodyGrace is how long a client's body may stay below the minimum rate.
const BodyGrace = 10 * time.Second

// Errors of a client while its request is served.
var (
	ErrBodyTooSlow = errors.New("the request body arrived slower than allowed")
	ErrBodyCut     = errors.New("the request body ended early")
	ErrTurnedAway  = errors.New("the slot of this client was needed for other clients")
)

// Body is the body of a request. It streams from the client. What passes is kept, within the caps,
// so that the whole body can be replayed. Only one goroutine uses it at a time: that of the
// exchange, or the one that LendClient lets read. Only Pieces, AwaitedSince, IsAwaited and
// ReplaySoFar are safe for concurrent use.
type Body struct {
	of      *Request
	framing http1.Framing
	left    int64 // bytes of a body with a length that were not read from the client yet
	chunked http1.Chunked
	total   int64
	began   clock.Instant // when reading began
	waited  time.Duration // in which the client could have sent bytes, for the minimum rate

	started     bool          // a byte of it was read
	ended       bool          // all of it was read
	keeping     bool          // what passes is kept
	scratchFull bool          // the last read filled scratch
	replayLoss  atomic.Uint32 // a policy.Replay: why the body is not kept; may be read while another goroutine owns the body
	kept        []piece       // what passed, in order
	keptLen     int64

	cursor  int           // next kept piece for the attempt being sent
	scratch buffer.Handle // for pieces that are not kept

	awaitedFrom atomic.Int64  // instant since when the rest of the body is awaited; zero: it is not
	pieces      atomic.Uint32 // pieces of bodies that were moved while the exchange waited for the upstream
}

// Await records that not all of the body has arrived yet.
func (b *Body) Await(now clock.Instant) {
	b.awaitedFrom.Store(int64(now))
	b.of.Conn.BeginBody()
}

// Arrived records that nothing more of the body is awaited.
func (b *Body) Arrived() {
	if b.awaitedFrom.Load() != 0 { // a load is cheaper than a store
		b.awaitedFrom.Store(0)
	}
}

// AwaitedSince returns since when the rest of the body is awaited; zero means that it is not. It is
// safe for concurrent use.
func (b *Body) AwaitedSince() clock.Instant { return clock.Instant(b.awaitedFrom.Load()) }

// IsAwaited reports whether the rest of the body is awaited. It is safe for concurrent use.
func (b *Body) IsAwaited() bool { return b.awaitedFrom.Load() != 0 }

// Pieces returns how many pieces of bodies were moved while responses were awaited. It is safe for
// concurrent use.
func (b *Body) Pieces() uint32 { return b.pieces.Load() }

// Framing returns how the client framed the body.
func (b *Body) Framing() http1.Framing { return b.framing }

// Ended reports whether all of the body was read.
func (b *Body) Ended() bool { return b.ended }

// Keeps reports whether what passes is kept. A piece that is not kept is valid only until the next one.
func (b *Body) Keeps() bool { return b.keeping }

// Total returns how many bytes of the body were read.
func (b *Body) Total() int64 { return b.total }

// Kept returns what passed, in order. It must not be changed.
func (b *Body) Kept() [][]byte {
	all := make([][]byte, 0, len(b.kept))
	for i := range b.kept {
		all = append(all, b.kept[i].bytes())
	}
	return all
}

// Trailers returns the trailers to send upstream after the end of the body.
func (b *Body) Trailers() []http1.Header {
	if !b.framing.HasTrailers() {
		return nil
	}
	return b.of.Dest.Forward.Changes.Trailers(b.chunked.Trailers())
}

func (b *Body) now() clock.Instant { return b.of.Time.Now() }

// memory returns what kept bytes are charged to.
func (b *Body) memory() *RetryBuffer { return b.of.Process.RetryBuffer }

// start notes when reading begins.
func (b *Body) start() {
	if !b.started {
		b.started, b.began = true, b.now()
	}
}

// IsInMemory reports whether the whole body is in memory and stays there, and is no longer than max
// bytes.
func (b *Body) IsInMemory(max int64) bool {
	if b.framing.Kind == http1.BodyNone || b.ended && b.keeping && b.keptLen <= max {
		return true
	}
	return b.keeping && !b.started && b.framing.Kind == http1.BodyLength && int64(b.of.Conn.Buffered()) >= b.left && b.left <= max
}

// Reset begins a body. Close must have released the one before.
func (b *Body) Reset(f http1.Framing) {
	b.framing, b.left, b.total, b.cursor, b.waited = f, f.Length, 0, 0, 0
	b.started, b.ended, b.keeping = false, f.Kind == http1.BodyNone, true
	why := policy.ReplayWhole
	switch f.Kind {
	case http1.BodyLength:
		b.ended = f.Length == 0
	case http1.BodyChunked, http1.BodyStream:
		b.chunked.Reset(b.of.Settings.Limits)
	}
	if f.Length > b.of.Route.RetryBufferBytes {
		b.keeping, why = false, policy.ReplayTooLarge
	}
	if lost := uint32(why); b.replayLoss.Load() != lost { // a load is cheaper than a store
		b.replayLoss.Store(lost)
	}
}

// IsComplete reports whether the whole body has arrived from the client.
func (b *Body) IsComplete() bool {
	return b.ended || !b.started && b.framing.Kind == http1.BodyLength && int64(b.of.Conn.Buffered()) >= b.left
}

// Replay returns whether the body can be replayed from its first byte.
func (b *Body) Replay() policy.Replay {
	switch {
	case !b.started || b.ended && b.keeping:
		return policy.ReplayWhole
	case !b.keeping:
		return policy.Replay(b.replayLoss.Load())
	}
	return policy.ReplayUnfinished
}

// ReplaySoFar is like Replay while another goroutine reads the body.
func (b *Body) ReplaySoFar() policy.Replay {
	if lost := policy.Replay(b.replayLoss.Load()); lost != policy.ReplayWhole {
		return lost
	}
	return policy.ReplayUnfinished
}

// Ready reports whether Next returns a piece, or the end, without waiting.
func (b *Body) Ready() bool {
	return b.cursor < len(b.kept) || b.ended || b.of.Conn.Buffered() > 0
}

// AtEnd reports whether the attempt being sent has got the whole body.
func (b *Body) AtEnd() bool { return b.ended && b.cursor >= len(b.kept) }

// Rewind makes the next attempt start at the first byte.
func (b *Body) Rewind() { b.cursor = 0 }

// Next returns the next piece for the attempt being sent: first what was kept, then what the
// client sends. It waits at most wait for the client; 0 means as long as a body may take. At the
// end it returns io.EOF. The piece is valid until the next call.
func (b *Body) Next(wait time.Duration) ([]byte, error) {
	if b.of.lending.lent {
		b.pieces.Add(1)
	}
	if b.cursor < len(b.kept) {
		b.cursor++
		return b.kept[b.cursor-1].bytes(), nil
	}
	if b.ended {
		return nil, io.EOF
	}
	if !b.keeping {
		b.release()
	}
	piece, err := b.read(wait)
	b.cursor = len(b.kept)
	return piece, err
}

// NextNow is like Next for a body with a length but never waits. An empty piece means that nothing
// has arrived.
func (b *Body) NextNow() ([]byte, error) {
	c := b.of.Conn
	if b.cursor < len(b.kept) || b.ended || c.Buffered() > 0 {
		return b.Next(0)
	}
	if c.TLS != nil || c.Raw == nil {
		return nil, nil // a layer that buffers, such as TLS, cannot be polled without a wait
	}
	if !b.keeping {
		b.release()
	}
	piece, err := b.readNow()
	b.cursor = len(b.kept)
	return piece, err
}

// readNow reads a piece without a wait, if one is there.
func (b *Body) readNow() ([]byte, error) {
	dst := b.space()
	dst = dst[:b.within(len(dst))]
	n, err := b.of.Conn.ReadNow(dst)
	switch {
	case n > 0:
	case err == io.EOF:
		return nil, ErrBodyCut
	case err != nil:
		return nil, attempt.ErrClientGone
	default:
		return nil, nil
	}
	b.start()
	b.countRead(n)
	return b.came(dst[:n]), nil
}

func (b *Body) read(wait time.Duration) ([]byte, error) {
	b.start()
	if b.framing.Kind == http1.BodyChunked {
		return b.readChunked(wait)
	}
	return b.readPlain(wait)
}

// readPlain returns the next piece of a body with a length, or of one that ends with its stream. It comes
// from the read buffer, or is read directly to where it is kept.
func (b *Body) readPlain(wait time.Duration) ([]byte, error) {
	c := b.of.Conn
	if n := int(b.within(c.Buffered())); n > 0 {
		piece := c.Peek()[:n:n]
		c.Discard(n)
		b.countRead(n)
		b.keepAlias(piece)
		return piece, b.trailersCame()
	}
	dst := b.space()
	dst = dst[:b.within(len(dst))]
	n, err := b.receive(dst, wait)
	if n == 0 {
		if b.ended {
			err = cmp.Or(b.trailersCame(), err)
		}
		return nil, err
	}
	b.countRead(n)
	return b.came(dst[:n]), b.trailersCame()
}

// trailersCame takes the trailers at the end of a body that ends with its stream.
func (b *Body) trailersCame() error {
	if !b.ended || b.framing.Kind != http1.BodyStream {
		return nil
	}
	return b.chunked.TakeTrailers(b.of.Conn.Trailers())
}

// within returns how many of n bytes may be of the body.
func (b *Body) within(n int) int64 {
	if b.framing.Kind == http1.BodyStream {
		return int64(n)
	}
	return min(int64(n), b.left)
}

func (b *Body) countRead(n int) {
	b.total += int64(n)
	b.left -= int64(n)
	b.ended = b.left == 0
	if b.framing.Kind == http1.BodyStream {
		b.ended = b.of.Conn.BodyEnded() && b.of.Conn.Buffered() == 0
	}
}

// readChunked returns the next piece of a chunked body from the read buffer and fills that buffer
// as needed. The headers must have been detached from the buffer.
func (b *Body) readChunked(wait time.Duration) ([]byte, error) {
	c := b.of.Conn
	for {
		n, data, err := b.chunked.Next(c.Peek())
		c.Discard(n)
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
		c.Compact()
		m, err := b.receive(c.Free(), wait)
		if m == 0 {
			return nil, err
		}
		c.Received(m)
	}
}

// joinChunks moves the payload that the read buffer still holds next to the n bytes used last, so
// that tiny chunks do not each cause a write upstream.
func (b *Body) joinChunks(n int) ([]byte, error) {
	c := b.of.Conn
	joined := c.Used(n)
	for c.Buffered() > 0 && !b.chunked.Done() {
		took, data, err := b.chunked.Next(c.Peek())
		c.Discard(took)
		if err != nil {
			return nil, err
		}
		joined = append(joined, data...) // it has room for all that was read
	}
	return slices.Clip(joined), nil
}

// receive reads from the client within wait, or within the time that the idle timeout and the
// minimum rate leave.
func (b *Body) receive(p []byte, wait time.Duration) (int, error) {
	c := b.of.Conn
	began := b.now()
	until, slack := b.readDeadline(began, began), time.Duration(0)
	if wait > 0 {
		until = began.Add(wait)
	} else if b.of.lending.lent {
		slack = time.Second
	}
	c.SetRead(until, slack)
	if b.isInterrupted() {
		return 0, attempt.ErrStopped
	}
	if c.IsTurnedAway() {
		return 0, ErrTurnedAway
	}
	n, err := c.ReadBody(p)
	b.waited += b.now().Sub(began)
	switch {
	case n > 0:
		return n, nil
	case err == nil:
		return 0, io.ErrNoProgress
	case rawsocket.IsTimeout(err) && b.isInterrupted():
		return 0, attempt.ErrStopped
	case rawsocket.IsTimeout(err) && c.IsTurnedAway():
		return 0, ErrTurnedAway
	case rawsocket.IsTimeout(err) && b.now().Before(until):
		c.ReadMoved() // a late wake-up for an earlier wait
		return b.receive(p, wait)
	case rawsocket.IsTimeout(err) && wait > 0:
		return 0, err
	case rawsocket.IsTimeout(err):
		return 0, ErrBodyTooSlow
	case errors.Is(err, io.EOF) && b.framing.Kind == http1.BodyStream && c.BodyEnded():
		b.ended = true
		return 0, io.EOF
	case errors.Is(err, io.EOF):
		return 0, ErrBodyCut
	case errors.Is(err, http2.ErrNotRead):
		return 0, err
	}
	return 0, attempt.ErrClientGone
}

// readDeadline returns when a client that sends nothing more counts as too slow. It has sent nothing
// since heard.
func (b *Body) readDeadline(heard, now clock.Instant) clock.Instant {
	until := now.Add(365 * 24 * time.Hour)
	if idle := b.of.Time.BodyIdle(); idle > 0 {
		until = heard.Add(idle)
	}
	if rate := b.of.Settings.MinBodyRate; rate > 0 && !b.of.GRPC {
		due := now.Add(BodyGrace + time.Duration(float64(b.total)/float64(rate)*float64(time.Second)) - b.waited)
		if due.Before(until) {
			until = due
		}
	}
	return until
}

// beginToFinish begins to read the rest of the body, if there is one that can be kept.
func (b *Body) beginToFinish() bool {
	if b.ended || !b.keeping {
		return false
	}
	b.start()
	return true
}

// finish reads the rest of the body only to keep it for a replay. It stops without an error if the
// body can no longer be kept, if it will not be complete by until, or if it is too slow for any
// body. A zero until means that it may take as long as any body.
func (b *Body) finish(until clock.Instant) error {
	b.cursor = len(b.kept)
	heard := b.now()
	for b.started && !b.ended && b.keeping {
		wait := time.Duration(0)
		if !until.IsZero() {
			now := b.now()
			if wait = min(b.timeToFinish(until), minRateSample, b.readDeadline(heard, now).Sub(now)); wait <= 0 {
				return nil
			}
		}
		had := b.total
		if _, err := b.Next(wait); err != nil && err != io.EOF && !rawsocket.IsTimeout(err) {
			return err
		}
		if b.total > had {
			heard = b.now()
		}
	}
	return nil
}

// minRateSample is how long a body is read before its rate is meaningful.
const minRateSample = time.Second

// timeToFinish returns how long to wait for the rest of the body until then. It returns 0 if the
// body would not be complete at the rate so far.
func (b *Body) timeToFinish(until clock.Instant) time.Duration {
	now := b.now()
	left, took := until.Sub(now), now.Sub(b.began)
	if b.framing.Kind == http1.BodyLength && took > minRateSample && float64(b.left)*took.Seconds() > float64(b.total)*left.Seconds() {
		return 0
	}
	return left
}
