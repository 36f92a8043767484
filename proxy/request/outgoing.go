package request

import (
	"slices"

	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// Outgoing holds the headers of a request as they are sent upstream.
type Outgoing struct {
	of *Request

	ID           []byte // X-Request-Id
	GeneratedKey []byte // the Idempotency-Key that the proxy added
	LacksHost    bool   // Headers have no Host, because it differs by attempt

	headers buffer.Handle // without what differs by attempt, in form; none: not rendered
	form    wire.Form

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
// dropped during a wait, or the connection takes another form.
func (o *Outgoing) Render(form wire.Form) {
	if o.headers.Owns() && o.form == form {
		return
	}
	if !o.headers.Owns() {
		o.headers = o.of.Conn.Buffers.Get(buffer.Small)
	}
	o.form = form
	o.LacksHost = forward.LacksHost(o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer())
	o.headers.Appended(o.render(o.headers.Bytes()[:0], form))
}

func (o *Outgoing) render(dst []byte, form wire.Form) []byte {
	if form == wire.Block {
		return forward.AppendRequestFields(form, dst, o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer(), o.ID, o.GeneratedKey)
	}
	return forward.AppendRequestHeaders(dst, o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer(), o.ID, o.GeneratedKey)
}

// generateKey adds an Idempotency-Key, unless the request has one.
func (o *Outgoing) generateKey() []byte {
	if o.of.Route.DryRun || o.of.Get(http1.IdempotencyKey) != nil {
		return nil
	}
	return forward.AppendRandomID(o.keyText[:0])
}

// For returns the headers for an attempt on a connection to host. They are valid until the next call.
func (o *Outgoing) For(a *attempt.Attempt, form wire.Form, host string, expect bool) wire.Head {
	o.Render(form)
	rendered := o.headers.Len()
	headers := o.finish(form, o.headers.Bytes(), expect, a)
	head := wire.Head{Form: form, Method: o.of.HTTP.Method}
	if form == wire.Block { // what it begins with lies behind it
		n := len(headers)
		headers = forward.AppendTarget(headers, o.of.HTTP, &o.of.Dest.Forward)
		m := len(headers)
		headers = forward.AppendAuthority(headers, o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer())
		head.Target, head.Authority = headers[n:m], headers[m:]
		headers = headers[:n]
	}
	head.Fields = headers
	o.headers.Appended(headers[:rendered]) // it may have grown
	if o.LacksHost {
		addHost(&head, host)
	}
	return head
}

// addHost adds the Host of an endpoint.
func addHost(h *wire.Head, host string) {
	if h.Form == wire.Lines {
		h.Fields = forward.AddHost(h.Fields, host)
		return
	}
	h.Authority = []byte(host)
}

// ForHedge returns the headers for an attempt that has no connection yet: in every form that its connection
// may take, since another goroutine makes it.
func (o *Outgoing) ForHedge(a *attempt.Attempt) func(form wire.Form, host string) wire.Head {
	var made [2][]byte
	for form := range made {
		made[form] = o.finish(wire.Form(form), o.render(make([]byte, 0, buffer.Small), wire.Form(form)), false, a)
	}
	lacksHost := forward.LacksHost(o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer())
	head := wire.Head{
		Method: o.of.HTTP.Method, Target: forward.AppendTarget(nil, o.of.HTTP, &o.of.Dest.Forward),
		Authority: forward.AppendAuthority(nil, o.of.HTTP, &o.of.Dest.Forward, o.of.Conn.Peer()),
	}
	return func(form wire.Form, host string) wire.Head {
		h := head
		if h.Form, h.Fields = form, slices.Clone(made[form]); lacksHost {
			addHost(&h, host)
		}
		return h
	}
}

// Drop returns the rendered headers to their pool. They are rendered anew if they are needed.
func (o *Outgoing) Drop() {
	if o.headers.Owns() {
		o.of.Conn.Buffers.Put(&o.headers)
	}
}

// Take moves the buffer of the rendered headers, if there is one, to the Handle that it returns.
func (o *Outgoing) Take() buffer.Handle { return o.headers.Take() }

// Headers returns the rendered headers, without what differs by attempt; nil: they are not rendered.
func (o *Outgoing) Headers() []byte { return o.headers.Bytes() }

// Detach forgets the ID, which may lie in the client's buffer.
func (o *Outgoing) Detach() { o.ID = nil }

// finish appends to the request headers what differs by attempt, but for the Host.
func (o *Outgoing) finish(form wire.Form, headers []byte, expect bool, a *attempt.Attempt) []byte {
	headers = o.of.Time.appendDeadline(form, headers)
	if o.of.Time.clientDeadline.GRPC {
		earlier := min(countIn(o.of, http1.GRPCPreviousRPCAttempts), maxEarlierAttempts)
		headers = forward.AppendGRPCAttempts(form, headers, int(earlier)+a.Number()-1)
	}
	if span := a.Span(); span != nil {
		headers = o.appendTrace(form, headers, span)
	}
	return forward.AppendAttempt(form, headers, int(o.of.earlierAttempts)+a.Number(), expect)
}

// appendTrace appends the fields of an attempt's span.
func (o *Outgoing) appendTrace(form wire.Form, headers []byte, s trace.AttemptSpan) []byte {
	parent, state, ok := s.Context()
	if !ok {
		return forward.AppendClientTrace(form, headers, o.of.HTTP)
	}
	headers = wire.AppendHeader(form, headers, "traceparent", parent)
	if state != "" {
		headers = wire.AppendHeader(form, headers, "tracestate", state)
	}
	return headers
}
