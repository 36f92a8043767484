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

// Finish appends to the request headers what differs by attempt. If the attempt has no connection
// yet and LacksHost is true, the caller adds the Host.
func (o *Outgoing) Finish(headers []byte, expect bool, a *attempt.Attempt) []byte {
	if o.of.Time.clientDeadline.Given {
		headers = o.of.Time.clientDeadline.Append(headers, o.of.Time.left(o.of.Time.Now()))
	}
	if o.of.Time.clientDeadline.GRPC {
		earlier := min(countIn(o.of, http1.GRPCPreviousRPCAttempts), maxEarlierAttempts)
		headers = forward.AppendGRPCAttempts(headers, int(earlier)+int(a.Number)-1)
	}
	if a.Span != nil {
		headers = o.appendTrace(headers, a.Span)
	}
	headers = forward.AppendAttempt(headers, int(o.of.EarlierAttempts+a.Number), expect)
	if o.LacksHost && a.Up != nil {
		return forward.AddHost(headers, a.Up.Host())
	}
	return headers
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
