package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

// serve handles a client's connection until it ends: one request after the other, each responded
// to before the next is read.
func (c *conn) serve() {
	defer c.finish()
	defer func() { c.server.contain(c, recover()) }()
	if c.expectsProxyHeader && !c.announced() || !c.handshake() {
		return
	}
	if !c.handshaken && c.agreedOnHTTP2() {
		c.serveHTTP2()
		return
	}
	for c.nextRequest() {
		again := c.serveRequest()
		c.server.drain.requestEnded()
		if !again || c.client.Stream != nil {
			return
		}
		c.client.EndRequest()
	}
	if c.http2.Load() != nil {
		c.serveHTTP2()
	}
}

// serveRequest serves the request whose headers were read, if there is room for it. It reports whether
// the connection can serve another one.
func (c *conn) serveRequest() bool {
	if c.awaitsBody() {
		if !c.admitBody() {
			return c.turnAway()
		}
	} else if !c.makeRoom(slots.Request) {
		return c.turnAway()
	}
	return c.x.Serve()
}

// makeRoom reports whether there is memory to serve the request. It waits for it.
func (c *conn) makeRoom(rank slots.Rank) bool {
	t := &c.server.clients
	return c.parent != nil || t.makeRoom(c.slot, t.costs.serving(c.isSecure), rank, roomWithin)
}

// admitBody reports whether there is room for a request whose body is to come.
func (c *conn) admitBody() bool {
	t := &c.server.clients
	if !t.admitUpload() {
		return false
	}
	defer t.uploads.coming.Add(-1)
	if !c.makeRoom(slots.Upload) {
		return false
	}
	now := c.server.now()
	c.beginProgress(now)
	c.x.Upload().Await(now)
	return true
}

// turnAway responds with 503 to a request for which there is no room. It reports false.
func (c *conn) turnAway() bool {
	c.server.noteTurnedAway()
	c.x.RefuseHeaders(http1.RefusalNoClientSlot)
	c.turnedAway = true
	return false
}

// lingerTime is how long a client may go on sending after the response that ended its connection.
const lingerTime = time.Second

// finish closes the connection and returns its memory.
func (c *conn) finish() {
	if c.handedToPoller {
		return
	}
	c.client.Buffers.Release()
	switch {
	case c.mustReset || c.x.MustReset():
	case c.client.IsTurnedAway(), c.turnedAway && !c.evicted.Load():
		c.client.CloseGently(slowFor) // it may send more of a body, but others wait for its slot
	case c.evicted.Load() && !c.used.Load() && c.client.TLS == nil && !c.expectsProxyHeader && c.client.Stream == nil:
		c.server.sayNoRoom(rawsocket.Unwrap(c.client.Wire)) // its request may be on its way
	case c.evicted.Load():
		_ = c.client.NC.Close() // nothing is in flight, and another client may wait for the slot
	default:
		c.client.CloseGently(lingerTime)
	}
	c.client.PutIn()
}

// nextRequest waits for request headers and parses them. It reports false if there are none; it
// has then sent a response if one was due.
func (c *conn) nextRequest() bool {
	for c.client.Buffered() == 0 || c.onlyBlank() {
		if !c.awaitRequest() {
			return false
		}
	}
	c.idleEnd = 0
	if !c.used.Load() {
		c.used.Store(true)
	}
	began := c.server.now()
	set := c.server.settings.Load()
	if set != c.peerSettings {
		peer := settings.PeerOf(c.remote(), set)
		peer.Secure = c.isSecure
		c.client.Identify(peer)
		c.peerSettings = set
	}
	c.client.Enter(downstream.PhaseBusy)
	c.server.drain.requestBegan()
	ok := c.readRequestHeaders(set, began)
	c.begun = true
	if ok {
		return true
	}
	c.server.drain.requestEnded()
	return false
}

// onlyBlank drops an empty line with nothing after it. Some clients send one after a body (RFC
// 9112 section 2.2); it begins no request, and the connection stays idle.
func (c *conn) onlyBlank() bool {
	if string(c.client.Peek()) != "\r\n" {
		return false
	}
	c.client.Discard(2)
	c.client.DropBuffer()
	return true
}

// idleSlack is how much earlier than configured an idle client may be closed, so that the deadline
// need not be set for every request.
const idleSlack = 5 * time.Second

// firstRequestTime is how long a client may stay connected without sending anything. Clients that
// keep spare connections use or renew them within that time.
const firstRequestTime = time.Minute

// awaitRequest waits for the first bytes of the next request. It reports false if there are none,
// or if the connection was parked.
func (c *conn) awaitRequest() bool {
	now := c.x.LastTick() // from the last request
	if c.client.MayHaveMoved() || now.IsZero() {
		now = c.server.now() // this connection did not just serve a request
	}
	c.idleFrom.Store(int64(now))
	c.client.Enter(downstream.PhaseIdle)
	end, slack := c.idleDeadline(now)
	c.idleEnd = end // whatever comes before the next request
	after := c.server.clients.parkAfter(c.server.parkAfter)
	for parks := c.parks && end.Sub(now) > 2*after; ; now = c.server.now() {
		if parks {
			c.client.SetRead(now.Add(after), after/2)
		} else {
			c.client.SetRead(end.Add(-slack), slack)
		}
		if c.server.drain.closingIdle() {
			return c.checkForRequest()
		}
		err := c.client.FillIdle()
		if err == nil {
			return true
		}
		switch {
		case !rawsocket.IsTimeout(err):
			return false
		case c.server.drain.closingIdle(), c.evicted.Load():
			return c.checkForRequest()
		case c.client.WokenEarly():
		case !parks:
			return c.checkForRequest()
		case c.park(end):
			return false
		default:
			parks = false
		}
	}
}

// idleDeadline returns when a connection that is idle from now on is closed, and how much earlier
// it may be closed.
func (c *conn) idleDeadline(now clock.Instant) (end clock.Instant, slack time.Duration) {
	if !c.idleEnd.IsZero() {
		return c.idleEnd, 0
	}
	limit := c.server.settings.Load().ClientIdleTimeout
	if !c.used.Load() {
		limit = min(limit, firstRequestTime)
	}
	if limit <= 0 {
		return now.Add(365 * 24 * time.Hour), 30 * 24 * time.Hour
	}
	return now.Add(limit), min(idleSlack, limit/10)
}

// checkForRequest reads what arrived at the last moment before an idle connection is closed: a
// response is better than a close that crosses a request.
func (c *conn) checkForRequest() bool {
	if c.client.Raw == nil {
		return false
	}
	if c.client.TLS != nil {
		return c.checkThroughTLS()
	}
	c.client.Enter(downstream.PhaseBusy)
	c.client.ClearRead()
	if !c.client.FillNow() || c.onlyBlank() {
		return false
	}
	c.evicted.Store(false)
	c.endLeaving()
	return true
}

// lastLook is how long a connection over TLS is read before it is closed. What has arrived is read at
// once.
const lastLook = 5 * time.Millisecond

// checkThroughTLS does the same over TLS, which cannot be read without waiting.
func (c *conn) checkThroughTLS() bool {
	c.client.Enter(downstream.PhaseBusy)
	c.client.LimitRead(lastLook)
	if c.client.FillIdle() != nil || c.onlyBlank() {
		return false
	}
	c.evicted.Store(false)
	c.endLeaving()
	return true
}

// readRequestHeaders parses the headers in the buffer and reads on until they are complete.
func (c *conn) readRequestHeaders(set *settings.Settings, began clock.Instant) bool {
	limited := false
	for {
		whole, err := c.client.ParseRequest(set.Limits)
		if err != nil {
			if c.sentPreface(set) {
				return false
			}
			c.x.Begin(set, began)
			c.refuseRequest(err)
			return false
		}
		if whole {
			c.x.Begin(set, began)
			if limited {
				c.client.Enter(downstream.PhaseBusy)
				c.x.Tick() // reading the headers took time
			}
			return true
		}
		if !limited {
			limited = true
			c.client.Buffers.Release() // the rest may arrive slowly
			c.client.SetRead(began.Add(set.ReadHeaderTimeout), 0)
			c.idleFrom.Store(int64(began))
			c.beginProgress(c.server.now())
			c.client.Enter(downstream.PhaseHeaders)
		}
		if !c.client.HasRoom() {
			c.client.GrowIn()
		}
		err = c.client.Fill()
		if rawsocket.IsTimeout(err) && c.server.now().Sub(began) < set.ReadHeaderTimeout && !c.evicted.Load() {
			limited, err = false, nil // a drain woke it as if it were idle
			c.client.ReadMoved()
		}
		if err != nil {
			c.client.ReparseRequest(set.Limits)
			c.x.Begin(set, began)
			c.requestCut(err)
			return false
		}
	}
}

// refuseRequest responds to headers that broke a rule, and ends the connection.
func (c *conn) refuseRequest(err error) {
	why := http1.RefusalBadRequestLine
	if refused := (*http1.Error)(nil); errors.As(err, &refused) {
		why = refused.Reason
	}
	c.x.RefuseHeaders(why)
}

// requestCut ends a connection whose client began a request and did not finish its headers. A
// client that was too slow gets a response; one that left gets none.
func (c *conn) requestCut(err error) {
	if c.evicted.Load() && rawsocket.IsTimeout(err) {
		c.turnAway()
		return
	}
	if !rawsocket.IsTimeout(err) || len(bytes.Trim(c.client.Peek(), "\r\n")) == 0 {
		return // an empty line is not the beginning of a request (RFC 9112 section 2.2)
	}
	c.x.HeadersTimedOut()
}
