package proxy

import (
	"bytes"
	"errors"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// serve is the life of a caller's connection: one request after the other, in
// order, each answered before the next is read.
func (c *conn) serve() {
	defer c.finish()
	defer func() { c.server.contain(c, recover()) }()
	if !c.shakeHands() {
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
		c.dropBuffer()
	}
	if c.http2.Load() != nil {
		c.serveHTTP2()
	}
}

// finish closes the connection and gives its memory back.
func (c *conn) finish() {
	if !c.x.aborting {
		c.closeGently()
	}
	putBuffer(c.in)
	c.in = nil
}

// nextRequest waits for a request head and parses it. False: there will be
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
	if set != c.peerBy {
		c.peer, c.peerBy = peerOf(c.nc, set), set
		if c.overSecure {
			c.peer.Proto = "https"
		}
	}
	c.phase.Store(phaseBusy)
	c.server.requestBegan()
	if c.readHead(set, began) {
		return true
	}
	c.server.requestEnded()
	return false
}

// onlyBlank drops an empty line with nothing behind it: some callers send one
// after a body (RFC 9112 section 2.2), which begins no request.
func (c *conn) onlyBlank() bool {
	if c.w-c.r != 2 || c.in[c.r] != '\r' || c.in[c.r+1] != '\n' {
		return false
	}
	c.r = c.w
	c.dropBuffer()
	return true
}

// idleSlack is how much earlier than configured an idle caller may be closed,
// so that the deadline needs no setting for every request.
const idleSlack = 5 * time.Second

// firstRequestTime is how long a caller that never sent anything may stay.
// Callers that keep spare connections use or renew them within that time.
const firstRequestTime = time.Minute

// awaitRequest waits for the first bytes of the next request.
func (c *conn) awaitRequest() bool {
	c.phase.Store(phaseIdle)
	for {
		now := c.x.clock
		if c.readAt == past || now.IsZero() {
			now = time.Now() // this is not the way from one request to the next
		}
		limit := c.idleLimit()
		if !c.used {
			limit = min(limit, firstRequestTime)
		}
		if limit > 0 {
			slack := min(idleSlack, limit/10)
			c.setRead(now.Add(limit-slack), slack)
		} else {
			c.setRead(now.Add(365*24*time.Hour), 30*24*time.Hour)
		}
		if c.server.closingIdle() {
			return false
		}
		err := c.fillIdle()
		if err == nil {
			return true
		}
		if !isTimeout(err) || !time.Now().Before(c.readAt) || c.server.closingIdle() {
			return false
		}
		c.readAt = past // somebody woke us by the deadline
	}
}

func (c *conn) idleLimit() time.Duration { return c.server.settings.Load().CallerIdleTimeout }

// readHead parses the head in the buffer, reading on until it is whole.
func (c *conn) readHead(set *settings, began time.Time) bool {
	limited := false
	for {
		n, err := c.req.Parse(c.in[:c.w], set.Limits)
		if err != nil {
			if c.sentPreface(set) {
				return false
			}
			c.x.begin(set, began)
			c.refuseHead(err)
			return false
		}
		if n > 0 {
			c.r = n
			c.x.begin(set, began)
			if limited {
				c.x.tick() // the head took its time
			}
			return true
		}
		if !limited {
			limited = true
			c.setRead(began.Add(set.ReadHeadTimeout), 0)
		}
		if c.w == len(c.in) {
			b := grow(c.in[:c.w], c.w)
			c.in = b[:cap(b)]
		}
		err = c.fill()
		if isTimeout(err) && time.Since(began) < set.ReadHeadTimeout {
			limited, err = false, nil // a drain woke us as if idle
			c.readAt = past
		}
		if err != nil {
			c.req.Reset() // its spans may lie in a buffer that was given back since
			_, _ = c.req.Parse(c.in[:c.w], set.Limits)
			c.x.begin(set, began)
			c.headCut(err)
			return false
		}
	}
}

// refuseHead answers a head that broke a rule, and ends the connection.
func (c *conn) refuseHead(err error) {
	x := &c.x
	x.tick()
	x.mustEnd = true
	x.route.observer.RequestBegan()
	status := 400
	var refused *http1.Error
	if errors.As(err, &refused) {
		status = refused.Status
		x.tellRefused(refused.Reason)
		x.reason = refused.Reason.String()
	}
	code, outcome := x.answerError(status, policy.OutcomeRefused, x.reason)
	x.done(code, outcome)
	x.end()
}

// headCut ends a connection whose caller began a request and did not finish
// its head: too slow gets an answer, gone gets none.
func (c *conn) headCut(err error) {
	if !isTimeout(err) || len(bytes.Trim(c.in[:c.w], "\r\n")) == 0 {
		return // an empty line is not the beginning of a request (RFC 9112 section 2.2)
	}
	x := &c.x
	x.tick()
	x.mustEnd = true
	x.route.observer.RequestBegan()
	x.done(x.answerError(408, policy.OutcomeRequestTimeout, "request_timeout"))
	x.end()
}
