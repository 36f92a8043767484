// Package attempt makes one send of a request on one upstream connection and reads its response,
// and nothing else. It has no notion of clients, routes or retries. Its owner passes the
// connection and the bytes, and implements Reader for everything that concerns the client.
package attempt

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Host is what all attempts of a server share.
type Host struct {
	Clock *clock.Clock
	// UnderPressure reports whether memory is short. Read buffers then stay small.
	UnderPressure func() bool
	// OnFault is called with a panic of the pump that was contained.
	OnFault func(fault any)
}

// Options are what an attempt must know about its request beforehand.
type Options struct {
	BodyIdle    time.Duration // how long a body may pause; 0: no limit
	Interactive bool          // the client may wait for a response before it sends more of its body
}

// Attempt is one send of a request to an upstream, and the response to it. It owns its upstream
// connection with the read buffer, the parser and the deadlines. A first attempt, a retry, a
// hedge, a send to a fallback upstream and a probe are attempts alike. It is not safe for
// concurrent use, except that one goroutine may send the request while another reads the response.
// The sending goroutine owns Spliced and RespondedEarly; both may use Progress.
type Attempt struct {
	Host    *Host
	Buffers *buffer.Cache // the source of read buffers

	client  Client
	source  Source
	options Options
	upload  Upload

	Permit breaker.Permit    // the right to be in flight
	Span   trace.AttemptSpan // nil: not traced
	Began  clock.Instant     // zero: the attempt is not running
	SentAt clock.Instant     // when the request was sent whole

	Up       *upstream.Conn      // nil: none yet, or handed over
	Endpoint *upstream.Endpoint  // where it was sent, if the upstream has several endpoints
	Addr     string              // the endpoint's address; "" before there was a connection
	DialErr  *upstream.DialError // why dialling failed
	Reused   bool                // Up has carried another request before
	// Unchecked means that Up came from the pool and was not checked for an end or stray bytes
	// yet.
	Unchecked bool
	GotBytes  bool // the upstream got a byte of the request
	// NotReusable means that Up must not carry another request, because the upstream may see the
	// end of this request elsewhere.
	NotReusable    bool
	RespondedEarly bool          // part of the response came before the request was sent whole
	Spliced        bool          // the kernel has moved some of the request body
	Number         int32         // among the request's attempts, from 1
	Progress       atomic.Int32  // of sending the request
	ReadBy         clock.Instant // read deadline now set on Up
	WriteBy        clock.Instant // write deadline now set on Up

	R, W        int   // Up.Buf[R:W] is read and not yet used
	headerStart int32 // Up.Buf[headerStart:headerEnd] holds the headers in resp until more of the response is read
	headerEnd   int32
	earlyErr    error // a read error that came before the response was due
	resp        http1.Response
	body        Body
}

// SendEnd is how far sending a request got.
type SendEnd uint8

// Ends of sending a request.
const (
	Taken    SendEnd = iota // the upstream got at least a byte: only its response tells the rest
	NotTaken                // the connection took no byte
	Stale                   // nothing was written: the upstream had closed the connection or sent stray bytes
)

// States of Progress.
const (
	Sending int32 = iota
	Sent
	WriteFailed
)

// Serve makes the attempt one for a client, who sends the body by source.
func (a *Attempt) Serve(client Client, source Source, o Options) {
	a.client, a.source, a.options = client, source, o
	a.upload.a = a
}

// Upload returns the sending of the request.
func (a *Attempt) Upload() *Upload { return &a.upload }

// Use takes the connection that the attempt is made on.
func (a *Attempt) Use(up *upstream.Conn) {
	a.Up, a.Reused, a.Endpoint = up, up.Reused, up.Endpoint
	a.Addr, a.DialErr = up.Addr, nil
	a.GotBytes = false
	a.ReadBy, a.WriteBy = clock.Instant(up.ReadBy), clock.Instant(up.WriteBy)
	a.R, a.W, a.earlyErr = 0, 0, nil
	a.resp.Restart()
	a.Progress.Store(Sending)
	if a.upload.lastPiece.Load() { // a load is cheaper than a store
		a.upload.lastPiece.Store(false)
	}
}

// DialFailed records that the attempt got no connection, and returns the cause.
func (a *Attempt) DialFailed(err error) policy.Cause {
	a.DialErr, a.Endpoint = nil, nil
	if !errors.As(err, &a.DialErr) {
		return policy.CauseDial
	}
	a.Addr = a.DialErr.Addr
	switch {
	case a.DialErr.Untrusted:
		return policy.CauseUntrusted
	case a.DialErr.Kind == upstream.KindTLS:
		return policy.CauseTLS
	}
	return policy.CauseDial
}

// Running reports whether the attempt has begun and not ended.
func (a *Attempt) Running() bool { return !a.Began.IsZero() }

// SentSome reports whether the upstream may have received a byte of the request.
func (a *Attempt) SentSome() bool {
	return a.Running() && a.Up != nil && a.GotBytes
}

// SentWhole records that the whole request was sent.
func (a *Attempt) SentWhole() { a.SentWholeAt(a.Host.Clock.Now()) }

// SentWholeAt records that the whole request was sent, or is being sent, at now.
func (a *Attempt) SentWholeAt(now clock.Instant) {
	a.SentAt = now
	a.Progress.Store(Sent)
}

// DialErrOf returns why an attempt with the result res got no connection, or nil if it got one.
func (a *Attempt) DialErrOf(res *policy.Attempt) *upstream.DialError {
	switch res.Cause {
	case policy.CauseDial, policy.CauseTLS, policy.CauseUntrusted:
		return a.DialErr
	}
	return nil
}

// NoteEarly records whether a response arrived before the last bytes of its request were sent.
func (a *Attempt) NoteEarly() {
	a.RespondedEarly = a.Up.CanSendChecked() && !a.Up.StillOpen()
}

// SendChecked sends a complete request, if the connection is still open, and waits until its read
// deadline for the first bytes of the response. waits reports whether none came. Reading the headers
// finds an error that came after the request was sent.
func (a *Attempt) SendChecked(parts [][]byte) (end SendEnd, waits bool) {
	a.NeedBuffer()
	n, got, err := a.Up.SendChecked(parts, a.Up.Buf)
	a.W, a.GotBytes = got, n > 0
	left := length(parts)
	defer a.upload.forget()
	switch {
	case err == nil && left == 0: // reading continues with the bytes that arrived
	case err == upstream.ErrStale:
		return Stale, false
	case n == 0 && rawsocket.IsTimeout(err):
		return a.sendLate(parts), false
	case n == 0 && err != nil:
		return NotTaken, false
	case left > 0: // the upstream took a part: what it took is cut off
		if _, err := a.Up.Writev(parts); err != nil {
			a.Progress.Store(WriteFailed)
		}
	case rawsocket.IsTimeout(err):
		return Taken, true
	default:
		a.earlyErr = err
	}
	return Taken, false
}

func length(parts [][]byte) int {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	return n
}

// sendLate sends a request if the wait for its response ended before anything was sent, because
// the process did not run for that long.
func (a *Attempt) sendLate(parts [][]byte) SendEnd {
	if a.Reused && !a.Up.StillOpen() {
		return Stale
	}
	n, err := a.Up.Writev(parts)
	a.GotBytes = n > 0
	switch {
	case n == 0 && err != nil:
		return NotTaken
	case err != nil:
		a.Progress.Store(WriteFailed)
	}
	return Taken
}

// TakePermit transfers the permit to the caller. It may be the zero permit.
func (a *Attempt) TakePermit() breaker.Permit {
	permit := a.Permit
	a.Permit = breaker.Permit{}
	return permit
}

// Response returns the response, whose headers are valid until the connection is given up or the body is
// read after HeadersSent.
func (a *Attempt) Response() *http1.Response { return &a.resp }

// ResponseMemory returns the capacity of the buffers that hold the response.
func (a *Attempt) ResponseMemory() int { return cap(a.Up.Buf) + cap(a.body.held) }

// Unread returns what was read behind the headers, for a protocol that follows them.
func (a *Attempt) Unread() []byte { return a.Up.Buf[a.R:a.W] }

// Take transfers the connection to the caller, without its read buffer. It returns nil if there is
// none.
func (a *Attempt) Take() *upstream.Conn {
	up := a.Up
	if up != nil {
		a.GiveUpBuffer()
		a.Up = nil
	}
	return up
}

// Abort resets the connection, so that the server notices at once.
func (a *Attempt) Abort() {
	if up := a.Take(); up != nil {
		up.Abort()
	}
}

// Release returns the connection to the pool after its response was read to the end.
func (a *Attempt) Release(now clock.Instant) {
	reusable := a.Progress.Load() == Sent && !a.NotReusable && !a.RespondedEarly && !a.resp.Close && a.R == a.W && !a.body.UntilClose()
	up := a.Take()
	if !reusable {
		closeWithoutWaiting(up)
		return
	}
	up.ReadBy, up.WriteBy = time.Duration(a.ReadBy), time.Duration(a.WriteBy)
	up.ReleaseAt(time.Duration(now), a.resp.KeepAliveTimeout)
}

// closeWithoutWaiting closes a connection whose response was read whole. It skips TLS's
// close_notify, which might wait for a peer that does not read.
func closeWithoutWaiting(up *upstream.Conn) {
	if up.Raw() == nil {
		up.Abort()
		return
	}
	_ = up.Close()
}

// ExtendWrite keeps the write deadline between idle and twice idle away; 0 means no deadline. The
// deadline may stem from an earlier request of another route.
func (a *Attempt) ExtendWrite(now clock.Instant, idle time.Duration) {
	left := a.WriteBy.Sub(now)
	switch {
	case idle <= 0 && a.WriteBy.IsZero() || idle > 0 && left >= idle && left <= 2*idle:
		return
	case idle <= 0:
		a.WriteBy = 0
	default:
		a.WriteBy = now.Add(2 * idle)
	}
	_ = a.Up.SetWriteDeadline(a.Host.Clock.At(a.WriteBy))
}

// Errors of reading a response, beside those of the connection.
var (
	// ErrClientGone is what a Reader returns if the client left while its response was read.
	ErrClientGone = errors.New("the client closed the connection")
	// ErrVanished is what a Reader returns if the upstream's system does not acknowledge the
	// request.
	ErrVanished = errors.New("the upstream does not acknowledge the request")
	// ErrCut is the error of a response that ended before the end that its framing announced.
	ErrCut = errors.New("the response was cut off")
	// ErrTrailersTooLarge is the error of a response that is whole but for its trailers.
	ErrTrailersTooLarge = errors.New("the trailers of the response are larger than headers may be")
)
