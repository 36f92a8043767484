package exchange

import (
	"io"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/report"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/response"
	"github.com/retryproxy/retryproxy/proxy/upload"
)

// relay sends an upstream's response to the client.
type relay struct {
	s        *sender
	r        *request.Request
	report   *report.Report
	w        *response.Writer
	attempts *attempts
	upgraded atomic.Pointer[tunnel] // what an upgrade became
}

// response sends the response of the attempt that just ended to the client as it arrives. It returns
// the status code and the outcome.
func (re *relay) response(o policy.Outcome, reason string) (int, policy.Outcome) {
	status := re.s.att.Resp.Status
	if status == 101 {
		return re.tunnel()
	}
	if re.w.NotGRPC(&re.s.att.Resp) {
		re.s.discard()
		return re.w.InPlaceOf(&re.s.att.Resp, o)
	}
	re.endIfUnread()
	framing := re.w.Framing(re.s.att.Body.Framing)
	events := framing.Kind != http1.BodyLength && isEventStream(&re.s.att.Resp)
	re.w.TakeHeadersBuffer()
	re.w.Headers(&re.s.att.Resp, framing, reason)
	re.s.att.Body.KeepBelow = 0 // the spans of the headers are not needed any more
	err := re.copyBody(framing)
	if err == nil {
		re.finishUpstream()
		return status, o
	}
	re.s.drop()
	re.s.upload.Stop()
	status, o = re.broken(status, framing, err)
	if events && o == policy.OutcomeResponseBroken {
		o = policy.OutcomeStreamCut
	}
	return status, o
}

// broken ends a response that could not be relayed whole. The client's connection ends such that
// the response looks cut off: by a reset if only the end of the connection ends the body.
func (re *relay) broken(status int, f http1.Framing, err error) (int, policy.Outcome) {
	re.w.MustClose = true
	if err == attempt.ErrClientGone {
		re.w.MustReset = true
		return status, re.w.ClientOutcome()
	}
	if re.r.GRPC && f.Kind == http1.BodyChunked && re.w.EndGRPCCall() == nil {
		return status, policy.OutcomeResponseBroken
	}
	re.w.MustReset = f.Kind == http1.BodyClose
	return status, policy.OutcomeResponseBroken
}

// endIfUnread marks the connection for closing if the response came before the whole request: the
// stream still contains the rest.
func (re *relay) endIfUnread() {
	if re.s.upload.HasBody() || !re.r.Body.Ended || re.r.Process.Draining.Load() {
		re.w.MustClose = true
	}
}

// copyBody sends the headers, which are in w, and then the body.
func (re *relay) copyBody(f http1.Framing) error {
	b := &re.s.att.Body
	if b.Ended {
		re.s.endRequest()
	}
	if len(b.Prefix) > 0 {
		if err := re.w.WritePiece(f, b.Prefix); err != nil {
			return err
		}
	}
	for !b.Ended {
		piece, err := b.Buffered()
		if err == nil && len(piece) == 0 && !b.Ended {
			if err := re.w.Flush(); err != nil {
				return err
			}
			if re.canSpliceDown(f) {
				return re.spliceDown()
			}
			if piece, err = b.Next(re.r.Time.IdleOrForever()); err == io.EOF {
				break
			}
		}
		if err != nil {
			_ = re.w.Flush()
			return err
		}
		if b.Ended {
			re.s.endRequest()
		}
		if err := re.w.WritePiece(f, piece); err != nil {
			return err
		}
	}
	re.s.endRequest()
	return re.w.EndBody(f, re.s.att.Body.Trailers())
}

// finishUpstream ends an attempt whose response was relayed whole. It gives up a request body that
// is still being sent: the upstream has responded.
func (re *relay) finishUpstream() {
	if re.s.att.Progress.Load() != attempt.Sent {
		re.s.drop()
		re.w.MustClose = re.w.MustClose || !re.r.Body.Ended
		return
	}
	re.s.upload.Stop()
	re.report.RelayedAt = re.r.Time.Tick()
	re.s.att.Release(re.report.RelayedAt)
}

// canSpliceDown reports whether the rest of the response has a length and can move inside the
// kernel.
func (re *relay) canSpliceDown(f http1.Framing) bool {
	return f.Kind == http1.BodyLength && re.s.att.Body.Left >= upload.SpliceFrom && re.s.att.R == re.s.att.W && !re.s.upload.HasBody() &&
		re.r.Conn.TCP != nil && re.s.att.Up.TCP() != nil && rawsocket.CanSplice()
}

// spliceDown moves the rest of the response body to the client.
func (re *relay) spliceDown() error {
	b := &re.s.att.Body
	until := re.r.Time.Now().Add(re.r.Time.IdleOrForever())
	for b.Left > 0 {
		now := re.r.Time.Tick()
		re.r.Conn.ExtendWrite(now)
		re.attempts.setRead(until, now)
		if re.r.ClientEnd.Load() != request.ClientPresent {
			return attempt.ErrClientGone
		}
		want := min(b.Left, upload.SplicePiece)
		re.r.Conn.Writing.Store(int64(now))
		n, err := re.s.upload.Splicer.Move(re.r.Conn.TCP, re.s.att.Up.TCP(), want)
		re.r.Conn.Writing.Store(0)
		b.Left -= n
		re.r.BodyBytesSent += n
		if n > 0 {
			until = re.r.Time.Now().Add(re.r.Time.IdleOrForever())
		}
		if n < want {
			if err := re.spliceDownEnded(err, until); err != nil {
				return err
			}
		}
	}
	b.Ended = true
	return nil
}

// spliceDownEnded returns why a splice ended early, or nil if it can go on.
func (re *relay) spliceDownEnded(err error, until clock.Instant) error {
	switch {
	case re.r.ClientEnd.Load() != request.ClientPresent, rawsocket.IsTimeout(err) && re.r.Conn.WriteTimedOut():
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err) && re.s.upload.LeftWhileStuck():
		re.r.ClientEnd.Store(request.ClientGone)
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err) && re.r.Time.Now().Before(until):
		re.s.upload.StartWatch(nil) // the wait before the client is watched is over, or the pump woke us
		return nil
	case err != nil && !rawsocket.IsTimeout(err) && re.r.Conn.HungUp():
		return attempt.ErrClientGone
	}
	return attempt.ErrCut
}

// buffered sends the buffered response to the client as it came.
func (re *relay) buffered(h *bufferedResponse, o policy.Outcome, reason string) (int, policy.Outcome) {
	h.restoreHeaders()
	re.s.att.Resp, h.resp = h.resp, re.s.att.Resp
	re.endIfUnread()
	if re.w.NotGRPC(&re.s.att.Resp) {
		re.s.discard()
		return re.w.InPlaceOf(&re.s.att.Resp, o)
	}
	f := re.w.Framing(h.framing)
	re.w.Headers(&re.s.att.Resp, f, reason)
	err := re.w.WritePiece(f, h.body)
	if err == nil && h.cut {
		_ = re.w.Flush()
		return re.broken(re.s.att.Resp.Status, f, attempt.ErrCut)
	}
	if err == nil {
		re.s.att.Body.Framing, re.s.att.Body.Chunked = h.framing, h.chunked
		err = re.w.EndBody(f, re.s.att.Body.Trailers())
	}
	if err != nil {
		return re.broken(re.s.att.Resp.Status, f, err)
	}
	return re.s.att.Resp.Status, o
}
