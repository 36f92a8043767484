package request

import (
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/bridge"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// BodyGrace is how long a client's body may stay below the minimum rate.
const BodyGrace = 10 * time.Second

// Errors of a client while its request is served.
var (
	ErrBodyTooSlow = errors.New("the request body arrived slower than allowed")
	ErrBodyCut     = errors.New("the request body ended early")
	ErrStopped     = errors.New("reading was stopped")
	ErrTurnedAway  = errors.New("other clients needed the slot of the client")
)

// Body is the body of a request. It streams from the client. What passes is kept, within the caps,
// so that the whole body can be replayed. Only one goroutine uses it at a time: that of the
// exchange, or the pump.
type Body struct {
	Of      *Request
	Pump    *Pump // the goroutine that reads it while the exchange continues
	Framing http1.Framing
	Left    int64 // bytes of a body with a length that were not read from the client yet
	Chunked http1.Chunked
	Total   int64
	Began   clock.Instant // when reading began
	waited  time.Duration // for bytes of the client, for the minimum rate

	Started     bool          // a byte of it was read
	Ended       bool          // all of it was read
	Keeping     bool          // what passes is kept
	scratchFull bool          // the last read filled scratch
	ReplayLoss  atomic.Uint32 // a policy.Replay: why the body is not kept; may be read while the pump owns the body
	Kept        [][]byte      // what passed, in order; the first may be the client's read buffer
	own         int           // kept[own:] are pooled chunks, charged by capacity
	KeptLen     int64

	Cursor  int    // next kept piece for the attempt being sent
	scratch []byte // for pieces that are not kept
}

// Reset begins a body. Close must have released the one before.
func (b *Body) Reset(f http1.Framing) {
	b.Framing, b.Left, b.Total, b.Cursor, b.waited = f, f.Length, 0, 0, 0
	b.Started, b.Ended, b.Keeping = false, f.Kind == http1.BodyNone, true
	why := policy.ReplayWhole
	switch f.Kind {
	case http1.BodyLength:
		b.Ended = f.Length == 0
		if f.Length > b.Of.Route.RetryBufferBytes {
			b.Keeping, why = false, policy.ReplayTooLarge
		}
	case http1.BodyChunked:
		b.Chunked.Reset(b.Of.Settings.Limits)
	}
	if lost := uint32(why); b.ReplayLoss.Load() != lost { // a load is cheaper than a store
		b.ReplayLoss.Store(lost)
	}
}

// IsComplete reports whether the whole body has arrived from the client.
func (b *Body) IsComplete() bool {
	return b.Ended || !b.Started && b.Framing.Kind == http1.BodyLength && int64(b.Of.Conn.Buffered()) >= b.Left
}

// Replay returns whether the body can be replayed from its first byte.
func (b *Body) Replay() policy.Replay {
	switch {
	case !b.Started || b.Ended && b.Keeping:
		return policy.ReplayWhole
	case !b.Keeping:
		return policy.Replay(b.ReplayLoss.Load())
	}
	return policy.ReplayUnfinished
}

// Ready reports whether Next returns a piece, or the end, without waiting.
func (b *Body) Ready() bool {
	return b.Cursor < len(b.Kept) || b.Ended || b.Of.Conn.Buffered() > 0
}

// AtEnd reports whether the attempt being sent has got the whole body.
func (b *Body) AtEnd() bool { return b.Ended && b.Cursor >= len(b.Kept) }

// Rewind makes the next attempt start at the first byte.
func (b *Body) Rewind() { b.Cursor = 0 }

// Next returns the next piece for the attempt being sent: first what was kept, then what the
// client sends. It waits at most wait for the client; 0 means as long as a body may take. At the
// end it returns io.EOF. The piece is valid until the next call.
func (b *Body) Next(wait time.Duration) ([]byte, error) {
	if b.Cursor < len(b.Kept) {
		b.Cursor++
		return b.Kept[b.Cursor-1], nil
	}
	if b.Ended {
		return nil, io.EOF
	}
	if !b.Keeping {
		b.release()
	}
	piece, err := b.read(wait)
	b.Cursor = len(b.Kept)
	return piece, err
}

// NextNow is like Next for a body with a length but never waits. An empty piece means that nothing
// has arrived.
func (b *Body) NextNow() ([]byte, error) {
	c := b.Of.Conn
	if b.Cursor < len(b.Kept) || b.Ended || c.Buffered() > 0 {
		return b.Next(0)
	}
	if c.TLS != nil || c.Raw == nil {
		return nil, nil // a layer that buffers, such as TLS, cannot be polled without a wait
	}
	if !b.Keeping {
		b.release()
	}
	dst := b.room()
	dst = dst[:min(int64(len(dst)), b.Left)]
	n, err := c.ReadNow(dst)
	b.Cursor = len(b.Kept)
	switch {
	case n > 0:
	case err == io.EOF:
		return nil, ErrBodyCut
	case err != nil:
		return nil, attempt.ErrClientGone
	default:
		return nil, nil
	}
	if !b.Started {
		b.Started, b.Began = true, b.Of.Process.Clock.Now()
	}
	b.countRead(n)
	b.commit(n)
	return dst[:n], nil
}

func (b *Body) read(wait time.Duration) ([]byte, error) {
	if !b.Started {
		b.Started, b.Began = true, b.Of.Process.Clock.Now()
	}
	if b.Framing.Kind == http1.BodyChunked {
		return b.readChunked(wait)
	}
	return b.readLength(wait)
}

// readLength returns the next piece of a body with a length. It comes from the read buffer, or is
// read directly to where it is kept.
func (b *Body) readLength(wait time.Duration) ([]byte, error) {
	c := b.Of.Conn
	if n := int(min(int64(c.Buffered()), b.Left)); n > 0 {
		piece := c.Peek()[:n:n]
		c.Discard(n)
		b.countRead(n)
		b.keepAlias(piece)
		return piece, nil
	}
	dst := b.room()
	dst = dst[:min(int64(len(dst)), b.Left)]
	n, err := b.receive(dst, wait)
	if n == 0 {
		return nil, err
	}
	b.countRead(n)
	b.commit(n)
	return dst[:n], nil
}

func (b *Body) countRead(n int) {
	b.Total += int64(n)
	b.Left -= int64(n)
	b.Ended = b.Left == 0
}

// readChunked returns the next piece of a chunked body from the read buffer and fills that buffer
// as needed. The headers must have been detached from the buffer.
func (b *Body) readChunked(wait time.Duration) ([]byte, error) {
	c := b.Of.Conn
	for {
		n, data, err := b.Chunked.Next(c.Peek())
		c.Discard(n)
		if err != nil {
			return nil, err
		}
		if len(data) > 0 {
			if data, err = b.joinChunks(len(data)); err != nil {
				return nil, err
			}
			b.Total += int64(len(data))
			b.keepCopy(data)
			b.Ended = b.Chunked.Done()
			return data, nil
		}
		if b.Chunked.Done() {
			b.Ended = true
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
	c := b.Of.Conn
	joined := c.Used(n)
	for c.Buffered() > 0 && !b.Chunked.Done() {
		took, data, err := b.Chunked.Next(c.Peek())
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
	c := b.Of.Conn
	began := b.Of.Process.Clock.Now()
	until, slack := b.ReadDeadline(began, began), time.Duration(0)
	if wait > 0 {
		until = began.Add(wait)
	} else if b.Pump.Running {
		slack = time.Second
	}
	c.SetRead(until, slack)
	if b.Pump.Stopping.Load() {
		return 0, ErrStopped
	}
	if c.IsTurnedAway() {
		return 0, ErrTurnedAway
	}
	n, err := c.NC.Read(p)
	b.WaitedForClient(b.Of.Process.Clock.Now().Sub(began))
	switch {
	case n > 0:
		return n, nil
	case err == nil:
		return 0, io.ErrNoProgress
	case rawsocket.IsTimeout(err) && b.Pump.Stopping.Load():
		return 0, ErrStopped
	case rawsocket.IsTimeout(err) && c.IsTurnedAway():
		return 0, ErrTurnedAway
	case rawsocket.IsTimeout(err) && b.Of.Process.Clock.Now().Before(until):
		c.ReadMoved() // a late wake-up for an earlier wait
		return b.receive(p, wait)
	case rawsocket.IsTimeout(err) && wait > 0:
		return 0, err
	case rawsocket.IsTimeout(err):
		return 0, ErrBodyTooSlow
	case errors.Is(err, io.EOF):
		return 0, ErrBodyCut
	case errors.Is(err, bridge.ErrNotRead):
		return 0, err
	}
	return 0, attempt.ErrClientGone
}

// WaitedForClient counts time in which the client could have sent bytes. An upstream that reads nothing
// is not the client's slowness.
func (b *Body) WaitedForClient(d time.Duration) { b.waited += d }

// ReadDeadline returns when a client that sends nothing more counts as too slow. It has sent nothing
// since heard.
func (b *Body) ReadDeadline(heard, now clock.Instant) clock.Instant {
	until := now.Add(365 * 24 * time.Hour)
	if idle := b.Of.Time.BodyIdle(); idle > 0 {
		until = heard.Add(idle)
	}
	if rate := b.Of.Settings.MinBodyRate; rate > 0 && !b.Of.GRPC {
		due := now.Add(BodyGrace + time.Duration(float64(b.Total)/float64(rate)*float64(time.Second)) - b.waited)
		if due.Before(until) {
			until = due
		}
	}
	return until
}

// Finish reads the rest of the body only to keep it for a replay. It stops without an error if the
// body can no longer be kept, if it will not be complete by until, or if it is too slow for any
// body. A zero until means that it may take as long as any body.
func (b *Body) Finish(until clock.Instant) error {
	b.Cursor = len(b.Kept)
	heard := b.Of.Process.Clock.Now()
	for b.Started && !b.Ended && b.Keeping {
		wait := time.Duration(0)
		if !until.IsZero() {
			now := b.Of.Process.Clock.Now()
			if wait = min(b.timeToFinish(until), minRateSample, b.ReadDeadline(heard, now).Sub(now)); wait <= 0 {
				return nil
			}
		}
		had := b.Total
		if _, err := b.Next(wait); err != nil && err != io.EOF && !rawsocket.IsTimeout(err) {
			return err
		}
		if b.Total > had {
			heard = b.Of.Process.Clock.Now()
		}
	}
	return nil
}

// minRateSample is how long a body is read before its rate is meaningful.
const minRateSample = time.Second

// timeToFinish returns how long to wait for the rest of the body until then. It returns 0 if the
// body would not be complete at the rate so far.
func (b *Body) timeToFinish(until clock.Instant) time.Duration {
	now := b.Of.Process.Clock.Now()
	left, took := until.Sub(now), now.Sub(b.Began)
	if b.Framing.Kind == http1.BodyLength && took > minRateSample && float64(b.Left)*took.Seconds() > float64(b.Total)*left.Seconds() {
		return 0
	}
	return left
}

// Pump is the state of the goroutine that reads a body while the exchange continues.
type Pump struct {
	Running  bool        // the pump runs; used by the exchange's goroutine only
	Stopping atomic.Bool // the pump must end
}
