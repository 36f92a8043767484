package exchange

import (
	"io"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/upload"
)

// relay sends an upstream's response to the client.
type relay struct {
	at       *attempts              // its running attempt has the response
	upgraded atomic.Pointer[tunnel] // the tunnel after an upgrade
}

// response sends the response of the attempt that just ended to the client as it arrives. It returns
// the status code and the outcome.
func (re *relay) response(o policy.Outcome, reason string) (int, policy.Outcome) {
	return re.rest(re.at.r.Time.Clock, o, reason)
}

// rest sends the response of the running attempt, whose headers were received at received.
func (re *relay) rest(received clock.Instant, o policy.Outcome, reason string) (int, policy.Outcome) {
	status := re.at.s.att.Resp.Status
	if status == 101 {
		return re.tunnel()
	}
	if re.at.w.NotGRPC(&re.at.s.att.Resp) {
		re.at.s.discard()
		return re.at.w.InPlaceOf(&re.at.s.att.Resp, o)
	}
	re.endIfUnread()
	framing := re.at.w.Framing(re.at.s.att.Body.Framing)
	events := framing.Kind != http1.BodyLength && isEventStream(&re.at.s.att.Resp)
	re.at.w.TakeHeadersBuffer()
	re.at.w.Headers(&re.at.s.att.Resp, framing, received, reason)
	re.at.s.att.Body.KeepBelow = 0 // the spans of the headers are not needed any more
	reads := re.readsUsage()
	err := re.copyBody(framing)
	if reads {
		re.countUsage(err == nil)
	}
	if err == nil {
		re.finishUpstream()
		return status, o
	}
	re.at.s.drop()
	re.at.s.upload.Stop()
	status, o = re.broken(status, framing, err)
	if events && o == policy.OutcomeResponseBroken {
		o = policy.OutcomeStreamCut
	}
	return status, o
}

// broken ends a response that could not be relayed whole. It makes the response look cut off to
// the client: if only the end of the connection ends the body, it resets the connection.
func (re *relay) broken(status int, f http1.Framing, err error) (int, policy.Outcome) {
	re.at.w.MustClose = true
	if err == attempt.ErrClientGone {
		re.at.w.MustReset = true
		return status, re.at.w.ClientOutcome()
	}
	end := re.at.w.EndGRPCCall
	if err == attempt.ErrTrailersTooLarge {
		re.at.report.Reason, end = http1.RefusalTrailersTooLarge.String(), re.at.w.EndGRPCCallWithoutTrailers
	}
	if re.at.r.GRPC && f.Kind == http1.BodyChunked && end() == nil {
		return status, policy.OutcomeResponseBroken
	}
	re.at.w.MustReset = f.Kind == http1.BodyClose
	return status, policy.OutcomeResponseBroken
}

// endIfUnread marks the connection for closing if the response came before the whole request,
// because the stream still contains the rest.
func (re *relay) endIfUnread() {
	if re.at.s.upload.HasBody() || !re.at.r.Body.Ended || re.at.r.Process.Draining.Load() {
		re.at.w.MustClose = true
	}
}

// copyBody sends the headers, which are in w, and then the body.
func (re *relay) copyBody(f http1.Framing) error {
	b := &re.at.s.att.Body
	if b.Ended {
		re.at.s.endRequest()
	}
	if len(b.Prefix) > 0 {
		re.at.r.Tokens.ReadUsage(b.Prefix)
		if err := re.at.w.WritePiece(f, b.Prefix); err != nil {
			return err
		}
	}
	for !b.Ended {
		piece, err := b.Buffered()
		if err == nil && len(piece) == 0 && !b.Ended {
			if err := re.at.w.Flush(); err != nil {
				return err
			}
			if re.canSpliceDown(f) {
				return re.spliceDown()
			}
			if piece, err = b.Next(re.at.r.Time.IdleOrForever()); err == io.EOF {
				break
			}
		}
		if err != nil {
			_ = re.at.w.Flush()
			return err
		}
		if b.Ended {
			re.at.s.endRequest()
		}
		re.at.r.Tokens.ReadUsage(piece)
		if err := re.at.w.WritePiece(f, piece); err != nil {
			return err
		}
	}
	re.at.s.endRequest()
	return re.at.w.EndBody(f, re.at.s.att.Body.Trailers())
}

// finishUpstream ends an attempt whose response was relayed whole. It stops sending a request
// body, because the upstream has responded.
func (re *relay) finishUpstream() {
	if re.at.s.att.Progress.Load() != attempt.Sent {
		re.at.s.drop()
		re.at.w.MustClose = re.at.w.MustClose || !re.at.r.Body.Ended
		return
	}
	re.at.s.upload.Stop()
	re.at.report.RelayedAt = re.at.r.Time.Tick()
	re.at.s.att.Release(re.at.report.RelayedAt)
}

// canSpliceDown reports whether the rest of the response has a length and can move inside the
// kernel.
func (re *relay) canSpliceDown(f http1.Framing) bool {
	return f.Kind == http1.BodyLength && re.at.s.att.Body.Left >= upload.SpliceFrom && !re.at.r.Tokens.ReadsUsage() && re.at.s.att.R == re.at.s.att.W && !re.at.s.upload.HasBody() &&
		re.at.r.Conn.TCP != nil && re.at.s.att.Up.TCP() != nil && rawsocket.CanSplice()
}

// spliceDown moves the rest of the response body to the client.
func (re *relay) spliceDown() error {
	b := &re.at.s.att.Body
	until := re.at.r.Time.Now().Add(re.at.r.Time.IdleOrForever())
	for b.Left > 0 {
		now := re.at.r.Time.Tick()
		re.at.r.Conn.ExtendWrite(now)
		re.at.setRead(until, now)
		if re.at.r.ClientEnd.Load() != request.ClientPresent {
			return attempt.ErrClientGone
		}
		want := min(b.Left, upload.SplicePiece)
		re.at.r.Conn.Writing.Store(int64(now))
		n, err := re.at.s.upload.Splicer.Move(re.at.r.Conn.TCP, re.at.s.att.Up.TCP(), want)
		re.at.r.Conn.Writing.Store(0)
		b.Left -= n
		re.at.r.BodyBytesSent += n
		if n > 0 {
			until = re.at.r.Time.Now().Add(re.at.r.Time.IdleOrForever())
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

// spliceDownEnded returns why a splice ended early, or nil if it can continue.
func (re *relay) spliceDownEnded(err error, until clock.Instant) error {
	switch {
	case re.at.r.ClientEnd.Load() != request.ClientPresent, rawsocket.IsTimeout(err) && re.at.r.Conn.WriteTimedOut():
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err) && re.at.s.upload.LeftWhileStuck():
		re.at.r.ClientEnd.Store(request.ClientGone)
		return attempt.ErrClientGone
	case rawsocket.IsTimeout(err) && re.at.r.Time.Now().Before(until):
		re.at.s.upload.StartWatch(nil) // the time before the client is watched is over, or the pump woke this goroutine
		return nil
	case err != nil && !rawsocket.IsTimeout(err) && re.at.r.Conn.HungUp():
		return attempt.ErrClientGone
	}
	return attempt.ErrCut
}

// buffered sends the buffered response to the client unchanged. If it has not ended yet, the rest
// follows as it arrives.
func (re *relay) buffered(h *bufferedResponse, o policy.Outcome, reason string) (int, policy.Outcome) {
	if h.rest != nil {
		re.at.stream = h.resume()
		return re.rest(h.received, o, reason)
	}
	h.restoreHeaders()
	re.at.s.att.Resp, h.resp = h.resp, re.at.s.att.Resp
	re.endIfUnread()
	if re.at.w.NotGRPC(&re.at.s.att.Resp) {
		re.at.s.discard()
		return re.at.w.InPlaceOf(&re.at.s.att.Resp, o)
	}
	f := re.at.w.Framing(re.at.s.att.Resp.Body)
	re.at.w.Headers(&re.at.s.att.Resp, f, h.received, reason)
	err := re.at.w.WritePiece(f, h.body)
	if err == nil && h.cut {
		_ = re.at.w.Flush()
		return re.broken(re.at.s.att.Resp.Status, f, attempt.ErrCut)
	}
	if err == nil {
		re.at.s.att.Body.Framing, re.at.s.att.Body.Chunked = re.at.s.att.Resp.Body, h.chunked
		err = re.at.w.EndBody(f, re.at.s.att.Body.Trailers())
	}
	if err != nil {
		return re.broken(re.at.s.att.Resp.Status, f, err)
	}
	return re.at.s.att.Resp.Status, o
}

// readsUsage begins to read what the response to relay says that it used, if the route counts tokens.
func (re *relay) readsUsage() bool {
	at := re.at
	resp := &at.s.att.Resp
	if !at.r.Route.CountTokens || resp.Status < 200 || resp.Status > 299 || at.stream.failed || !isUncompressed(resp) {
		return false
	}
	events := isEventStream(resp)
	if !events && !isPlainJSON(resp) {
		return false
	}
	at.r.NeedTokens().BeginUsage(events)
	return true
}

// countUsage counts what a response used that was relayed, whole or not.
func (re *relay) countUsage(whole bool) {
	fate := tokens.Wasted
	if whole {
		fate = tokens.Delivered
	}
	if used := re.at.r.Tokens.EndUsage(); used.Any() {
		re.at.report.Observer.TokensUsed(used, fate)
	}
}
