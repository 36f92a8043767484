package request

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// OwnID copies the request's id, which may lie in the client's buffer.
func (cr *Request) OwnID() { cr.ID = append(cr.IDText[:0], cr.ID...) }

// RenderHeaders makes the request headers for the upstream, once for all attempts, and again if
// they were not kept over a wait.
func (cr *Request) RenderHeaders() {
	if cr.RequestHeaders == nil {
		cr.RequestHeaders = cr.Conn.Buffers.Get(buffer.Small)[:0]
		cr.RequestHeaders = forward.AppendRequestHeaders(cr.RequestHeaders, cr.HTTP, &cr.Dest.Forward, &cr.Conn.Peer, cr.ID, cr.GeneratedKey)
	}
}

func (cr *Request) IdempotencyKey() []byte {
	if cr.Route.DryRun || cr.Get(http1.IdempotencyKey) != nil {
		return nil
	}
	return forward.AppendRandomID(cr.keyText[:0])
}

// WouldDropTLS reports whether a request for an https target would go to another upstream without
// TLS.
func (cr *Request) WouldDropTLS(to upstream.Target) bool {
	return cr.Settings.ForwardProxy && cr.HTTP.Form == http1.Absolute && http1.EqualFold(cr.HTTP.Scheme, "https") && to.TLS == nil
}

// IsGRPCCall reports whether the request just parsed, which came over HTTP/2, is a call that
// expects gRPC's responses: gRPC is spoken over nothing else.
func (cr *Request) IsGRPCCall() bool { return forward.IsGRPC(cr.Get(http1.ContentType)) }

// Hedgeable reports whether it makes sense to hedge the request. An upgrade or a stream of events
// is a stream, and a gRPC call may be one.
func (cr *Request) Hedgeable() bool {
	return cr.Safe && !cr.GRPC && cr.HTTP.Upgrade == nil && !bytes.Contains(cr.HTTP.Get(http1.Accept), eventStream)
}

// ClientIsProxy reports whether the client is another retryproxy. It is always told why we gave up,
// so that it does not retry what we retried.
func (cr *Request) ClientIsProxy() bool {
	return cr.HeaderNames.Has(http1.XRetryproxyAttempt) && cr.Conn.Peer.IsBelieved()
}

// Refusal returns why a well-formed request is not forwarded, or RefusalNone.
func (cr *Request) Refusal() http1.Refusal {
	r, q := cr.Route, cr.HTTP
	if cr.Settings.ForwardProxy && q.Form == http1.Absolute && !r.Accepts(q) {
		return http1.RefusalOtherHost
	}
	if r.MaxBodyBytes > 0 && q.Body.Kind == http1.BodyLength && q.Body.Length > r.MaxBodyBytes {
		return http1.RefusalBodyTooLarge
	}
	if (r.Forward.StripPrefix != "" || cr.Settings.Table.HasPaths()) &&
		cr.Settings.Table.Ambiguous(cr.Conn.Listener, q.Authority, q.Path, q.Method, q, r.Forward.StripPrefix) {
		return http1.RefusalAmbiguousPath
	}
	if r.HasBasePath() && route.Climbs(q.Path) {
		return http1.RefusalAmbiguousPath
	}
	return http1.RefusalNone
}

// IsAnsweredLocally reports whether the request is an OPTIONS or TRACE that must not be forwarded
// (RFC 9110 section 7.6.2).
func (cr *Request) IsAnsweredLocally() bool {
	n, ok := forward.MaxForwards(cr.HTTP)
	return ok && n == 0
}

// FinishHeaders appends to the request headers what differs by attempt.
func (cr *Request) FinishHeaders(headers []byte, expect bool, a *attempt.Attempt) []byte {
	if cr.clientDeadline.Given {
		headers = cr.clientDeadline.Append(headers, cr.timeLeft(cr.Now()))
	}
	if cr.clientDeadline.GRPC {
		earlier := min(cr.countIn(http1.GRPCPreviousRPCAttempts), maxEarlierAttempts)
		headers = forward.AppendGRPCAttempts(headers, int(earlier)+int(a.Number)-1)
	}
	if a.Span != nil {
		headers = cr.appendTrace(headers, a.Span)
	}
	return forward.AppendAttempt(headers, cr.EarlierAttempts+int(a.Number), expect)
}

// ContinueClient sends 100 Continue to a client that still waits for it, because a retry carries
// no expectation.
func (cr *Request) ContinueClient() {
	if cr.ExpectsContinue {
		cr.ExpectsContinue = false
		if cr.Conn.Write(continueLine, cr.Now()) != nil {
			cr.ClientEnd.Store(ClientGone)
		}
	}
}

// appendTrace appends the fields of an attempt's span.
func (cr *Request) appendTrace(headers []byte, s trace.AttemptSpan) []byte {
	parent, state, ok := s.Context()
	if !ok {
		return forward.AppendClientTrace(headers, cr.HTTP)
	}
	headers = http1.AppendHeader(headers, "traceparent", parent)
	if state != "" {
		headers = http1.AppendHeader(headers, "tracestate", state)
	}
	return headers
}

var eventStream = []byte("text/event-stream")

var continueLine = []byte("HTTP/1.1 100 Continue\r\n\r\n")
