package exchange

import (
	"io"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// relay sends the response of the attempt that just ended to the client as it arrives. It returns
// the status code and the outcome.
func (x *Exchange) relay(o policy.Outcome, reason string) (int, policy.Outcome) {
	status := x.att.Resp.Status
	if status == 101 {
		return x.tunnel()
	}
	if x.notGRPC() {
		return x.respondNotGRPC(o)
	}
	x.endIfUnread()
	framing := x.w.framing(x.att.Body.Framing)
	events := framing.Kind != http1.BodyLength && isEventStream(&x.att.Resp)
	if x.w.buf == nil {
		x.w.buf, x.RequestHeaders = x.RequestHeaders, nil // there will be no other attempt
	}
	x.w.buf = x.w.appendHeaders(x.w.clean(), &x.att.Resp, framing, reason)
	x.w.started, x.att.Body.KeepBelow = true, 0 // the head's spans are not needed any more
	err := x.copyBody(framing)
	if err == nil {
		x.finishUpstream()
		return status, o
	}
	x.dropUpstream()
	x.upload.stop()
	status, o = x.broken(status, framing, err)
	if events && o == policy.OutcomeResponseBroken {
		o = policy.OutcomeStreamCut
	}
	return status, o
}

// broken ends a response that could not be relayed whole. The client's connection ends such that
// the response looks cut off: by a reset if only the end of the connection ends the body.
func (x *Exchange) broken(status int, f http1.Framing, err error) (int, policy.Outcome) {
	x.w.mustClose = true
	if err == attempt.ErrClientGone {
		x.w.mustReset = true
		return status, x.clientOutcome()
	}
	if x.GRPC && f.Kind == http1.BodyChunked && x.w.endGRPCCall() == nil {
		return status, policy.OutcomeResponseBroken
	}
	x.w.mustReset = f.Kind == http1.BodyClose
	return status, policy.OutcomeResponseBroken
}

// endIfUnread marks the connection for closing if the response came before the whole request: the
// stream still contains the rest.
func (x *Exchange) endIfUnread() {
	if x.upload.hasBody() || !x.Body.Ended || x.Process.Draining.Load() {
		x.w.mustClose = true
	}
}

// copyBody sends x.out, which contains the headers, and then the body.
func (x *Exchange) copyBody(f http1.Framing) error {
	b := &x.att.Body
	if b.Ended {
		x.endRequest()
	}
	if len(b.Prefix) > 0 {
		if err := x.w.writePiece(f, b.Prefix); err != nil {
			return err
		}
	}
	for !b.Ended {
		piece, err := b.Buffered()
		if err == nil && len(piece) == 0 && !b.Ended {
			if err := x.w.flush(); err != nil {
				return err
			}
			if x.canSpliceDown(f) {
				return x.spliceDown()
			}
			if piece, err = b.Next(x.IdleOrForever()); err == io.EOF {
				break
			}
		}
		if err != nil {
			_ = x.w.flush()
			return err
		}
		if b.Ended {
			x.endRequest()
		}
		if err := x.w.writePiece(f, piece); err != nil {
			return err
		}
	}
	x.endRequest()
	return x.w.endBody(f, x.att.Body.Trailers())
}

// endRequest is called when the response is whole, before its last bytes go to the client. A request
// body still in flight ends here: what followed it could pass for another request, and its
// connection carries none.
func (x *Exchange) endRequest() {
	if !x.upload.Running {
		return
	}
	x.upload.awaitLastWrite()
	if x.att.Progress.Load() != attempt.Sent {
		x.att.NotReusable = true
		x.upload.stop()
	}
}

// finishUpstream ends an attempt whose response was relayed whole. It gives up a request body that
// is still being sent: the upstream has responded.
func (x *Exchange) finishUpstream() {
	if x.att.Progress.Load() != attempt.Sent {
		x.dropUpstream()
		x.w.mustClose = x.w.mustClose || !x.Body.Ended
		return
	}
	x.upload.stop()
	x.report.RelayedAt = x.Tick()
	x.att.Release(x.report.RelayedAt)
}

// canSpliceDown reports whether the rest of the response has a length and can move inside the
// kernel.
func (x *Exchange) canSpliceDown(f http1.Framing) bool {
	return f.Kind == http1.BodyLength && x.att.Body.Left >= spliceFrom && x.att.R == x.att.W && !x.upload.hasBody() &&
		x.Conn.TCP != nil && rawTCP(x.att.Up) != nil && rawsocket.CanSplice()
}

// spliceDown moves the rest of the response body to the client.
func (x *Exchange) spliceDown() error {
	b := &x.att.Body
	until := x.Now().Add(x.IdleOrForever())
	for b.Left > 0 {
		now := x.Tick()
		x.Conn.ExtendWrite(now)
		x.setUpRead(until, now)
		if x.ClientEnd.Load() != request.ClientPresent {
			return attempt.ErrClientGone
		}
		want := min(b.Left, splicePiece)
		x.Conn.Writing.Store(int64(now))
		n, err := spliceTo(x.Conn.TCP, rawTCP(x.att.Up), want, &x.splice)
		x.Conn.Writing.Store(0)
		b.Left -= n
		x.BodyBytesSent += n
		if n > 0 {
			until = x.Now().Add(x.IdleOrForever())
		}
		if n < want {
			if err := x.spliceDownEnded(err, until); err != nil {
				return err
			}
		}
	}
	b.Ended = true
	return nil
}

// spliceDownEnded returns why a splice ended early, or nil if it can go on.
func (x *Exchange) spliceDownEnded(err error, until clock.Instant) error {
	switch {
	case x.ClientEnd.Load() != request.ClientPresent, rawsocket.IsTimeout(err) && x.Conn.WriteTimedOut():
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err) && x.upload.leftWhileStuck():
		x.ClientEnd.Store(request.ClientGone)
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err) && x.Now().Before(until):
		x.upload.startWatch(nil) // the wait before the client is watched is over, or the pump woke us
		return nil
	case err != nil && !rawsocket.IsTimeout(err) && x.Conn.HungUp():
		return attempt.ErrClientGone
	}
	return attempt.ErrCut
}
