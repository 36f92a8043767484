package proxy

import (
	"io"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

// relay sends the response of the attempt that just ended to the client as it arrives. It returns
// the status code and the outcome.
func (x *exchange) relay(o policy.Outcome, reason string) (int, policy.Outcome) {
	status := x.resp.Status
	if status == 101 {
		return x.tunnel()
	}
	if x.notGRPC() {
		return x.respondNotGRPC(o)
	}
	x.endIfUnread()
	framing := x.clientFraming(x.respBody.framing)
	if x.out == nil {
		x.out, x.requestHeaders = x.requestHeaders, nil // there will be no other attempt
	}
	x.out = x.appendHead(x.cleanOut(), framing, reason)
	x.started, x.respBody.keepBelow = true, 0 // the head's spans are not needed any more
	err := x.copyBody(framing)
	if err == nil {
		x.finishUpstream()
		return status, o
	}
	x.dropUpstream()
	x.stopPump()
	return x.broken(status, framing, err)
}

// broken ends a response that could not be relayed whole. The client's connection ends such that
// the response looks cut off: by a reset if only the end of the connection ends the body.
func (x *exchange) broken(status int, f http1.Framing, err error) (int, policy.Outcome) {
	x.mustClose = true
	if err == errClientGone {
		x.mustReset = true
		return status, x.clientOutcome()
	}
	if x.grpc && f.Kind == http1.BodyChunked && x.endGRPCCall() == nil {
		return status, policy.OutcomeResponseBroken
	}
	x.mustReset = f.Kind == http1.BodyClose
	return status, policy.OutcomeResponseBroken
}

// endIfUnread marks the connection for closing if the response came before the whole request: the
// stream still contains the rest.
func (x *exchange) endIfUnread() {
	if x.uploading() || !x.body.ended || x.c.server.draining.Load() {
		x.mustClose = true
	}
}

// clientFraming returns the framing towards the client for a body with the upstream's framing f.
func (x *exchange) clientFraming(f http1.Framing) http1.Framing {
	switch {
	case f.Kind == http1.BodyNone || f.Kind == http1.BodyLength:
		return f
	case x.req.Minor == 0:
		x.mustClose = true
		return http1.Framing{Kind: http1.BodyClose}
	}
	return http1.Framing{Kind: http1.BodyChunked}
}

// clientIsProxy reports whether the client is another retryproxy. It is always told why we gave up,
// so that it does not retry what we retried.
func (x *exchange) clientIsProxy() bool {
	return x.headerNames.Has(http1.XRetryproxyAttempt) && x.c.peer.IsBelieved()
}

func (x *exchange) appendHead(dst []byte, f http1.Framing, reason string) []byte {
	o := forward.ResponseOptions{
		Framing: f,
		Minor:   x.req.Minor,
		Close:   x.mustClose,
		Via:     x.route.Forward.Via,
	}
	x.ownHeaders(&o, reason)
	return forward.AppendResponseHeaders(dst, &x.resp, &o)
}

// copyBody sends x.out, which contains the headers, and then the body.
func (x *exchange) copyBody(f http1.Framing) error {
	b := &x.respBody
	if b.ended {
		x.endRequest()
	}
	if len(b.prefix) > 0 {
		if err := x.writePiece(f, b.prefix); err != nil {
			return err
		}
	}
	for !b.ended {
		piece, err := b.buffered()
		if err == nil && len(piece) == 0 && !b.ended {
			if err := x.flush(); err != nil {
				return err
			}
			if x.canSpliceDown(f) {
				return x.spliceDown()
			}
			if piece, err = b.next(x.idleOrForever()); err == io.EOF {
				break
			}
		}
		if err != nil {
			_ = x.flush()
			return err
		}
		if b.ended {
			x.endRequest()
		}
		if err := x.writePiece(f, piece); err != nil {
			return err
		}
	}
	x.endRequest()
	return x.endBody(f)
}

// endRequest is called when the response is whole, before its last bytes go to the client. A request
// body still in flight ends here: what followed it could pass for another request, and its
// connection carries none.
func (x *exchange) endRequest() {
	if !x.pumping {
		return
	}
	x.awaitLastWrite()
	if x.progress.Load() != sent {
		x.upNotReusable = true
		x.stopPump()
	}
}

// frame is the room for the size line and the end of a chunk.
const frame = 20

// writePiece appends a piece to x.out and writes x.out when it is full.
func (x *exchange) writePiece(f http1.Framing, piece []byte) error {
	x.bodyBytesSent += int64(len(piece))
	if len(x.out)+len(piece)+frame > cap(x.out) && len(x.out)+len(piece)+frame <= mediumBuffer {
		x.out = grow(x.out, len(piece)+frame)
	}
	if f.Kind == http1.BodyChunked {
		return x.writeChunks(piece)
	}
	if len(piece) > cap(x.out)-len(x.out) {
		err := x.flushWith(piece)
		x.tick() // it may have waited for the client
		return err
	}
	x.out = append(x.out, piece...)
	return nil
}

// writeChunks is writePiece for a chunked body, in as many chunks as necessary.
func (x *exchange) writeChunks(piece []byte) error {
	for len(piece) > 0 {
		if cap(x.out)-len(x.out) <= frame {
			if err := x.flush(); err != nil {
				return err
			}
			x.tick() // it may have waited for the client
		}
		n := min(len(piece), cap(x.out)-len(x.out)-frame)
		x.out = http1.AppendChunk(x.out, piece[:n])
		piece = piece[n:]
	}
	return nil
}

// endBody sends the rest and the end of the framing.
func (x *exchange) endBody(f http1.Framing) error {
	if f.Kind == http1.BodyChunked {
		var trailers []http1.Header
		if x.respBody.framing.Kind == http1.BodyChunked {
			trailers = x.respBody.chunked.Trailers()
		}
		x.out = http1.AppendLastChunk(x.out, trailers)
	}
	return x.flush()
}

// flush writes x.out to the client.
func (x *exchange) flush() error {
	if len(x.out) == 0 {
		return nil
	}
	return x.flushWith(nil)
}

// flushWith writes x.out and then p, without copying p.
func (x *exchange) flushWith(p []byte) error {
	err := x.c.writeBoth(x.out, p, x.clock)
	x.out = x.out[:0]
	if err != nil {
		return errClientGone
	}
	return nil
}

// finishUpstream ends an attempt whose response was relayed whole. It gives up a request body that
// is still being sent: the upstream has responded.
func (x *exchange) finishUpstream() {
	if x.progress.Load() != sent {
		x.dropUpstream()
		x.mustClose = x.mustClose || !x.body.ended
		return
	}
	x.stopPump()
	x.relayedAt = x.tick()
	x.releaseUpstream(x.relayedAt)
}

// canSpliceDown reports whether the rest of the response has a length and can move inside the
// kernel.
func (x *exchange) canSpliceDown(f http1.Framing) bool {
	return f.Kind == http1.BodyLength && x.respBody.left >= spliceFrom && x.upR == x.upW && !x.uploading() &&
		x.c.tcp != nil && rawTCP(x.up) != nil && rawsocket.CanSplice()
}

// spliceDown moves the rest of the response body to the client.
func (x *exchange) spliceDown() error {
	b := &x.respBody
	until := x.now().Add(x.idleOrForever())
	for b.left > 0 {
		now := x.tick()
		x.c.extendWrite(now)
		x.setUpRead(until, now)
		if x.clientEnd.Load() != clientPresent {
			return errClientGone
		}
		want := min(b.left, splicePiece)
		x.c.writing.Store(int64(now))
		n, err := x.move(downward, x.c.tcp, rawTCP(x.up), want)
		x.c.writing.Store(0)
		b.left -= n
		x.bodyBytesSent += n
		if n > 0 {
			until = x.now().Add(x.idleOrForever())
		}
		if n < want {
			if err := x.spliceDownEnded(err, until); err != nil {
				return err
			}
		}
	}
	b.ended = true
	return nil
}

// spliceDownEnded returns why a splice ended early, or nil if it can go on.
func (x *exchange) spliceDownEnded(err error, until instant) error {
	switch {
	case x.clientEnd.Load() != clientPresent, isTimeout(err) && x.c.writeTimedOut():
		return errClientGone
	case isTimeout(err) && x.leftWhileStuck():
		x.clientEnd.Store(clientGone)
		return errClientGone
	case isTimeout(err) && x.now().Before(until):
		x.startWatch(nil) // the wait before the client is watched is over, or the pump woke us
		return nil
	case err != nil && !isTimeout(err) && x.c.hungUp():
		return errClientGone
	}
	return errResponseCut
}

func (x *exchange) idleOrForever() time.Duration {
	if t := x.bodyIdle(); t > 0 {
		return t
	}
	return 365 * 24 * time.Hour
}
