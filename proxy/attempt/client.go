package attempt

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Owner decides about the attempts of a request. Its methods are called by the goroutine that makes the
// attempt, but for Dial.
type Owner interface {
	// Target returns where the attempt is sent. It is called before each connection.
	Target(a *Attempt) Target
	// Dial opens a connection. It runs in a goroutine of its own.
	Dial(ctx context.Context, o upstream.GetOptions) (*upstream.Conn, error)
	// AwaitDescriptor waits before the next dial, because no descriptor was free since then. It reports
	// whether to dial again.
	AwaitDescriptor(a *Attempt, wait time.Duration, since clock.Instant) bool
	// Connected is called with each connection, before anything is sent on it.
	Connected(a *Attempt, up *upstream.Conn)
	// RequestHeaders returns the headers to send in that form. host is that of the connection's endpoint, and
	// expect asks for a 100. They are valid until the next call.
	RequestHeaders(a *Attempt, form wire.Form, host string, expect bool) wire.Head
	// RespondBy returns when the response of a request that was sent whole must be there; zero means
	// never.
	RespondBy(sentAt clock.Instant) clock.Instant
	// SentWhole is called when the request was sent whole, more than once.
	SentWhole(a *Attempt)
	// Inform passes on an informational response.
	Inform(r *http1.Response)
	// HedgeDue is called when the hedge is due. It may call StartHedge.
	HedgeDue()
}

// Client is who waits for the response, as far as an attempt must know. While the goroutine that makes
// the attempt waits for the upstream, the pump reads from the client.
type Client interface {
	// Tick reads the clock, and LastTick returns what it read last.
	Tick() clock.Instant
	LastTick() clock.Instant
	// Source returns the body of the request.
	Source() Source
	// Method returns the method of the request.
	Method() []byte
	// LeavesAt returns when the client leaves, as it announced; zero means that it is unknown.
	LeavesAt() clock.Instant
	// ClientStaysOn reports whether the client is still there and its side is in order.
	ClientStaysOn() bool
	// LendClient lets the pump read from the client until ReturnClient.
	LendClient()
	// InterruptClient ends at once what the pump waits for. It is called once.
	InterruptClient()
	// ReturnClient ends the loan, after the pump has ended.
	ReturnClient()
	// WatchClient reports whether the client left before InterruptClient was called.
	WatchClient() bool
	// ClientHungUp reports whether the client has closed its side.
	ClientHungUp() bool
	// ClientFailed records why the client's side ended.
	ClientFailed(err error)
}

// Source is the body of a request, which streams from the client. One goroutine uses it at a time.
type Source interface {
	// Framing returns how the body is framed, for the upstream as for us.
	Framing() http1.Framing
	// IsInMemory reports whether the whole body is in memory and stays there, and is no longer than
	// max bytes.
	IsInMemory(max int64) bool
	// Rewind makes the first byte the next one.
	Rewind()
	// Ready reports whether Next returns a piece, or the end, without waiting.
	Ready() bool
	// AtEnd reports whether Next has returned all.
	AtEnd() bool
	// Keeps reports whether pieces stay valid after the next one.
	Keeps() bool
	// Next returns the next piece, or io.EOF at the end. It waits at most wait for the client; 0 means
	// as long as a body may take. After InterruptClient it returns ErrStopped.
	Next(wait time.Duration) ([]byte, error)
	// NextNow is like Next for a body with a length but never waits. An empty piece means that nothing
	// has arrived.
	NextNow() ([]byte, error)
	// Trailers returns the trailers to send after the end.
	Trailers() []http1.Header
	// Kept returns the pieces that Next has returned, if it keeps them.
	Kept() [][]byte
	// CanSplice reports whether the kernel can move the rest of the body.
	CanSplice() bool
	// SpliceTo moves the next piece to dst inside the kernel, whose write deadline is dstBy. more
	// reports whether another piece can follow. The error is ErrNotTaken if dst ended it, ErrStopped
	// after InterruptClient, and otherwise that of the client.
	SpliceTo(dst *net.TCPConn, dstBy clock.Instant) (more bool, err error)
	// Pieces returns how many pieces were moved. It is safe for concurrent use.
	Pieces() uint32
	// Arrived records that nothing more of the body is awaited.
	Arrived()
}

// Errors of a Source, beside those of the client.
var (
	ErrStopped  = errors.New("reading was stopped")
	ErrNotTaken = errors.New("the upstream stopped reading the request body")
)
