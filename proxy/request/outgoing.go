package request

import (
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// Outgoing holds the headers of a request as they are sent upstream.
type Outgoing struct {
	of *Request

	ID           []byte // X-Request-Id
	GeneratedKey []byte // the Idempotency-Key that the proxy added
	Headers      []byte // without what differs by attempt; nil: not rendered
	LacksHost    bool   // Headers have no Host, because it differs by attempt

	idText  [forward.RandomIDLen]byte
	keyText [forward.RandomIDLen]byte
}

// FindID sets the request ID: the client's, or a new one.
func (o *Outgoing) FindID() { o.ID = forward.RequestID(o.of.HTTP, o.idText[:0]) }

// MakeID sets a new request ID without looking for the client's.
func (o *Outgoing) MakeID() { o.ID = forward.AppendRandomID(o.idText[:0]) }

// OwnID copies the ID, which may lie in the client's buffer.
func (o *Outgoing) OwnID() { o.ID = append(o.idText[:0], o.ID...) }

// Render renders the headers for the upstream, once for all attempts, and again if they were
// dropped during a wait.
func (o *Outgoing) Render() {
	if o.Headers == nil {
		o.Headers = o.of.Conn.Buffers.Get(buffer.Small)[:0]
		o.LacksHost = forward.LacksHost(o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer())
		o.Headers = forward.AppendRequestHeaders(o.Headers, o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer(), o.ID, o.GeneratedKey)
	}
}

// generateKey adds an Idempotency-Key, unless the request has one.
func (o *Outgoing) generateKey() []byte {
	if o.of.Route.DryRun || o.of.Get(http1.IdempotencyKey) != nil {
		return nil
	}
	return forward.AppendRandomID(o.keyText[:0])
}

// For returns the headers for an attempt on a connection to host. They are valid until the next call.
func (o *Outgoing) For(a *attempt.Attempt, host string, expect bool) []byte {
	o.Render()
	headers := o.finish(o.Headers, expect, a)
	o.Headers = headers[:len(o.Headers)] // it may have grown
	if o.LacksHost {
		return forward.AddHost(headers, host)
	}
	return headers
}

// ForHedge returns a copy of the headers for an attempt that has no connection yet. If LacksHost is true,
// the Host must be added.
func (o *Outgoing) ForHedge(a *attempt.Attempt) []byte {
	o.Render()
	return o.finish(append(make([]byte, 0, len(o.Headers)+buffer.Small/8), o.Headers...), false, a)
}

// Drop returns the rendered headers to their pool. They are rendered anew if they are needed.
func (o *Outgoing) Drop() {
	if o.Headers != nil {
		o.of.Conn.Buffers.Put(o.Headers)
		o.Headers = nil
	}
}

// finish appends to the request headers what differs by attempt, but for the Host.
func (o *Outgoing) finish(headers []byte, expect bool, a *attempt.Attempt) []byte {
	if o.of.Time.clientDeadline.Given {
		headers = o.of.Time.clientDeadline.Append(headers, o.of.Time.left(o.of.Time.Now()))
	}
	if o.of.Time.clientDeadline.GRPC {
		earlier := min(countIn(o.of, http1.GRPCPreviousRPCAttempts), maxEarlierAttempts)
		headers = forward.AppendGRPCAttempts(headers, int(earlier)+a.Number()-1)
	}
	if span := a.Span(); span != nil {
		headers = o.appendTrace(headers, span)
	}
	return forward.AppendAttempt(headers, int(o.of.EarlierAttempts)+a.Number(), expect)
}

// appendTrace appends the fields of an attempt's span.
func (o *Outgoing) appendTrace(headers []byte, s trace.AttemptSpan) []byte {
	parent, state, ok := s.Context()
	if !ok {
		return forward.AppendClientTrace(headers, o.of.HTTP)
	}
	headers = http1.AppendHeader(headers, "traceparent", parent)
	if state != "" {
		headers = http1.AppendHeader(headers, "tracestate", state)
	}
	return headers
}
