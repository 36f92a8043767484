package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// serve is the life of a client's connection: one request after the other, in
// order, each answered before the next is read.
func (c *conn) serve() {
	defer c.finish()
	defer func() { c.server.contain(c, recover()) }()
	if c.expectsProxyHeader && !c.announced() || !c.handshake() {
		return
	}
	if c.agreedOnHTTP2() {
		c.serveHTTP2()
		return
	}
	for c.nextRequest() {
		again := c.x.serve()
		c.x.end()
		c.server.requestEnded()
		if !again || c.stream != nil {
			return
		}
		c.compact()
		if cap(c.in) != smallBuffer || c.readSize > smallBuffer {
			c.dropBuffer()
		}
	}
	if c.http2.Load() != nil {
		c.serveHTTP2()
	}
}

// finish closes the connection and gives its memory back.
func (c *conn) finish() {
	if c.handedToPoller {
		return
	}
	c.x.spareBuffers.release()
	switch {
	case c.x.mustReset:
	case c.evicted.Load():
		_ = c.nc.Close() // nothing is in flight, and somebody waits for the slot
	default:
		c.closeGently()
	}
	c.putIn()
}

// nextRequest waits for a request headers and parses it. False: there will be
// none, and whatever had to be answered was.
func (c *conn) nextRequest() bool {
	for c.r == c.w || c.onlyBlank() {
		if !c.awaitRequest() {
			return false
		}
	}
	c.used = true
	began := c.server.now()
	set := c.server.settings.Load()
	if set != c.peerSettings {
		c.peer, c.peerSettings = peerOf(c.remote(), set), set
		c.peer.Secure = c.isSecure
		c.peer.Render()
	}
	c.phase.Store(phaseBusy)
	c.server.requestBegan()
	if c.readRequestHeaders(set, began) {
		return true
	}
	c.server.requestEnded()
	return false
}

// onlyBlank drops an empty line with nothing behind it: some clients send one
// after a body (RFC 9112 section 2.2), which begins no request.
func (c *conn) onlyBlank() bool {
	if c.w-c.r != 2 || c.in[c.r] != '\r' || c.in[c.r+1] != '\n' {
		return false
	}
	c.r = c.w
	c.dropBuffer()
	return true
}

// idleSlack is how much earlier than configured an idle client may be closed,
// so that the deadline needs no setting for every request.
const idleSlack = 5 * time.Second

// firstRequestTime is how long a client that never sent anything may stay.
// Clients that keep spare connections use or renew them within that time.
const firstRequestTime = time.Minute

// awaitRequest waits for the first bytes of the next request. False: there
// will be none, or the connection is parked.
func (c *conn) awaitRequest() bool {
	now := c.x.clock
	if c.readAt == longAgo || now.IsZero() {
		now = c.server.now() // this is not the way from one request to the next
	}
	c.idleFrom.Store(int64(now))
	c.phase.Store(phaseIdle)
	end, slack := c.idleDeadline(now)
	for parks := c.parks && end.Sub(now) > 2*c.server.parkAfter; ; now = c.server.now() {
		if parks {
			c.setRead(now.Add(c.server.parkAfter), c.server.parkAfter/2)
		} else {
			c.setRead(end.Add(-slack), slack)
		}
		if c.server.closingIdle() {
			return c.checkForRequest()
		}
		err := c.fillIdle()
		if err == nil {
			return true
		}
		switch {
		case !isTimeout(err):
			return false
		case c.server.closingIdle(), c.evicted.Load():
			return c.checkForRequest()
		case c.server.now().Before(c.readAt):
			c.readAt = longAgo // somebody woke us by the deadline
		case !parks:
			return c.checkForRequest()
		case c.park(end):
			return false
		default:
			parks = false
		}
	}
}

// idleDeadline is when a connection that is idle from now on is closed, and by
// how much that may be sooner.
func (c *conn) idleDeadline(now instant) (end instant, slack time.Duration) {
	if end = c.idleEnd; !end.IsZero() {
		c.idleEnd = 0
		return end, 0
	}
	limit := c.server.settings.Load().ClientIdleTimeout
	if !c.used {
		limit = min(limit, firstRequestTime)
	}
	if limit <= 0 {
		return now.Add(365 * 24 * time.Hour), 30 * 24 * time.Hour
	}
	return now.Add(limit), min(idleSlack, limit/10)
}

// checkForRequest takes what came at the last moment before an idle connection is
// closed: a response is better than a close that crosses a request.
func (c *conn) checkForRequest() bool {
	if c.raw == nil || c.secure != nil {
		return false
	}
	c.phase.Store(phaseBusy)
	_ = c.nc.SetReadDeadline(time.Time{})
	c.readAt = longAgo
	c.releaseIdleBuffers()
	c.in = getBuffer(c.readSize)
	c.w, _ = c.readNow(c.in)
	c.dropBuffer()
	if c.w > 0 {
		c.evicted.Store(false)
		c.endLeaving()
	}
	return c.w > 0
}

// readRequestHeaders parses the head in the buffer, reading on until it is whole.
func (c *conn) readRequestHeaders(set *settings, began instant) bool {
	limited := false
	for {
		n, err := c.req.Parse(c.in[:c.w], set.Limits)
		if err != nil {
			if c.sentPreface(set) {
				return false
			}
			c.x.begin(set, began)
			c.refuseRequest(err)
			return false
		}
		if n > 0 {
			c.r = n
			c.x.begin(set, began)
			if limited {
				c.phase.Store(phaseBusy)
				c.x.tick() // the head took its time
			}
			return true
		}
		if !limited {
			limited = true
			c.x.spareBuffers.release() // the rest may come slowly
			c.setRead(began.Add(set.ReadHeaderTimeout), 0)
			c.idleFrom.Store(int64(began))
			c.phase.Store(phaseHeaders)
		}
		if c.w == len(c.in) {
			c.growIn()
		}
		err = c.fill()
		if isTimeout(err) && c.server.now().Sub(began) < set.ReadHeaderTimeout && !c.evicted.Load() {
			limited, err = false, nil // a drain woke us as if idle
			c.readAt = longAgo
		}
		if err != nil {
			c.req.Reset() // its spans may lie in a buffer that was given back since
			_, _ = c.req.Parse(c.in[:c.w], set.Limits)
			c.x.begin(set, began)
			c.requestCut(err)
			return false
		}
	}
}

// refuseRequest answers a head that broke a rule, and ends the connection.
func (c *conn) refuseRequest(err error) {
	x := &c.x
	x.tick()
	x.startObserving()
	why := http1.RefusalBadRequestLine
	if refused := (*http1.Error)(nil); errors.As(err, &refused) {
		why = refused.Reason
	}
	x.done(x.refuse(why))
	x.end()
}

// requestCut ends a connection whose client began a request and did not finish
// its head: too slow gets a response, gone gets none.
func (c *conn) requestCut(err error) {
	if !isTimeout(err) || len(bytes.Trim(c.in[:c.w], "\r\n")) == 0 {
		return // an empty line is not the beginning of a request (RFC 9112 section 2.2)
	}
	x := &c.x
	x.tick()
	x.mustClose = true
	x.startObserving()
	x.done(x.respondError(408, policy.OutcomeRequestTimeout, "request_timeout"))
	x.end()
}
