package exchange

import (
	"cmp"
	"io"
	"sync/atomic"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/request"
)

// relay sends an upstream's response to the client.
type relay struct {
	at       *attempts              // its running attempt has the response
	upgraded atomic.Pointer[tunnel] // the tunnel after an upgrade
}

// response sends the response of the attempt that just ended to the client as it arrives. The request comes to
// end if that succeeds. reason is for the client.
func (re *relay) response(end request.End, reason string) request.End {
	return re.rest(re.at.Time.Clock, end, reason)
}

// rest sends the response of the running attempt, whose headers were received at received.
func (re *relay) rest(received clock.Instant, end request.End, reason string) request.End {
	resp, body := re.at.running().Response(), re.at.running().Body()
	if end.Status = resp.Status; end.Status == 101 {
		return re.tunnel(end)
	}
	if re.at.w.NotGRPC(resp) {
		re.at.running().Abandon()
		return re.at.w.InPlaceOf(resp, end)
	}
	re.endIfUnread()
	framing := re.at.w.Framing(body.Framing())
	events := framing.Kind != http1.BodyLength && isEventStream(resp)
	if body.Ended() {
		re.at.running().EndRequest() // the headers may end the client's stream
	}
	re.at.w.TakeHeadersBuffer()
	re.at.w.Headers(resp, framing, received, reason)
	body.HeadersSent()
	reads := re.readsUsage()
	err := re.copyBody(framing)
	if reads {
		re.countUsage(err == nil)
	}
	if err == nil {
		re.finishUpstream()
		return end
	}
	re.at.running().Drop()
	re.at.running().StopUpload()
	end = re.broken(end, framing, err)
	if events && end.Outcome == policy.OutcomeResponseBroken {
		end.Outcome = policy.OutcomeStreamCut
	}
	return end
}

// broken ends a response that could not be relayed whole, and returns what the request comes to in place of
// end. It makes the response look cut off to the client: if only the end of the connection ends the body, it
// resets the connection.
func (re *relay) broken(end request.End, f http1.Framing, err error) request.End {
	re.at.w.Close()
	if err == attempt.ErrClientGone {
		re.at.w.Reset()
		left := re.at.w.ClientEnd()
		end.Outcome, end.Reason = left.Outcome, cmp.Or(left.Reason, end.Reason)
		return end
	}
	end.Outcome = policy.OutcomeResponseBroken
	endCall := re.at.w.EndGRPCCall
	if err == attempt.ErrTrailersTooLarge {
		endCall = re.at.w.EndGRPCCallWithoutTrailers
		end.Reason = http1.RefusalTrailersTooLarge.String()
	}
	if re.at.GRPC && f.HasTrailers() && endCall() == nil {
		return end
	}
	if f.Kind == http1.BodyClose {
		re.at.w.Reset()
	}
	return end
}

// endIfUnread marks the connection for closing if the response came before the whole request,
// because the stream still contains the rest.
func (re *relay) endIfUnread() {
	if re.at.running().SendsBody() || !re.at.Body.Ended() || re.at.IsDraining() {
		re.at.w.Close()
	}
}

// copyBody sends the headers, which are in re.at.w, and then the body.
func (re *relay) copyBody(f http1.Framing) error {
	b := re.at.running().Body()
	if b.Ended() {
		re.at.running().EndRequest()
	}
	if held := b.Held(); len(held) > 0 {
		re.at.Tokens.ReadUsage(held)
		if err := re.at.w.WritePiece(f, held); err != nil {
			return err
		}
	}
	for !b.Ended() {
		piece, err := b.Buffered()
		if err == nil && len(piece) == 0 && !b.Ended() {
			if err := re.at.w.Flush(); err != nil {
				return err
			}
			if re.canSpliceDown(f) {
				return re.spliceDown()
			}
			if piece, err = b.Next(re.at.Time.IdleOrForever()); err == io.EOF {
				break
			}
		}
		if err != nil {
			_ = re.at.w.Flush()
			return err
		}
		if b.Ended() {
			re.at.running().EndRequest()
		}
		re.at.Tokens.ReadUsage(piece)
		if err := re.at.w.WritePiece(f, piece); err != nil {
			return err
		}
	}
	re.at.running().EndRequest()
	return re.at.w.EndBody(f, b.Trailers())
}

// finishUpstream ends an attempt whose response was relayed whole. It stops sending a request
// body, because the upstream has responded.
func (re *relay) finishUpstream() {
	if !re.at.running().IsSent() {
		re.at.running().Drop()
		if !re.at.Body.Ended() {
			re.at.w.Close()
		}
		return
	}
	re.at.running().Release(re.at.report.Relayed)
}

// canSpliceDown reports whether the rest of the response has a length and can move inside the
// kernel.
func (re *relay) canSpliceDown(f http1.Framing) bool {
	return f.Kind == http1.BodyLength && !re.at.Tokens.ReadsUsage() && re.at.Conn.TCP != nil && re.at.running().Body().CanSplice()
}

// spliceDown moves the rest of the response body to the client.
func (re *relay) spliceDown() error {
	b := re.at.running().Body()
	until := re.at.Time.IdleEnd()
	for !b.Ended() {
		now := re.at.Time.Tick()
		re.at.Conn.ExtendWrite(now)
		re.at.Conn.BeginWrite(now)
		n, whole, err := b.SpliceTo(re.at.Conn.TCP, until, now)
		re.at.Conn.EndWrite()
		re.at.w.Spliced(n)
		if n > 0 {
			until = re.at.Time.IdleEnd()
		}
		if !whole {
			if err := re.spliceDownEnded(err, until); err != nil {
				return err
			}
		}
	}
	return nil
}

// spliceDownEnded returns why a splice ended early, or nil if it can continue.
func (re *relay) spliceDownEnded(err error, until clock.Instant) error {
	if re.at.ClientEnd() != request.ClientPresent || rawsocket.IsTimeout(err) && re.at.Conn.WriteTimedOut() {
		return attempt.ErrClientGone
	}
	return re.at.running().Body().SpliceEnded(err, until)
}

// buffered sends the buffered response to the client unchanged. If it has not ended yet, the rest
// follows as it arrives.
func (re *relay) buffered(h *bufferedResponse, end request.End, reason string) request.End {
	if h.rest != nil {
		re.at.stream = h.resume()
		return re.rest(h.received, end, reason)
	}
	h.kept.Restore(re.at.Settings.Limits, re.at.HTTP.Method)
	resp := h.kept.Response()
	end.Status = resp.Status
	re.endIfUnread()
	if re.at.w.NotGRPC(resp) {
		re.at.running().Abandon()
		return re.at.w.InPlaceOf(resp, end)
	}
	f := re.at.w.Framing(resp.Body)
	re.at.w.Headers(resp, f, h.received, reason)
	err := re.at.w.WritePiece(f, h.kept.Body())
	if err == nil && h.kept.Cut() {
		_ = re.at.w.Flush()
		return re.broken(end, f, attempt.ErrCut)
	}
	if err == nil {
		err = re.at.w.EndBody(f, h.kept.Trailers())
	}
	if err != nil {
		return re.broken(end, f, err)
	}
	return end
}

// readsUsage begins to read what the response to relay says that it used, if the route counts tokens.
func (re *relay) readsUsage() bool {
	at := re.at
	if !at.Route.CountTokens {
		return false
	}
	resp := at.running().Response()
	if resp.Status < 200 || resp.Status > 299 || at.stream.failed || !isUncompressed(resp) {
		return false
	}
	events := isEventStream(resp)
	if !events && !isPlainJSON(resp) {
		return false
	}
	at.NeedTokens().BeginUsage(events)
	return true
}

// countUsage counts what a response used that was relayed, whole or not.
func (re *relay) countUsage(whole bool) {
	fate := tokens.Wasted
	if whole {
		fate = tokens.Delivered
	}
	re.at.report.TokensUsed(re.at.Tokens.EndUsage(), fate)
}
