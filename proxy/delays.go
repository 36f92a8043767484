package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

const (
	// slowFor is how long a client must keep the proxy waiting, for the rest of its headers or body or
	// to read what is written, before it may be evicted. It has its whole timeout while no other
	// client needs its slot.
	slowFor = 50 * time.Millisecond
	// newcomerFor is the same for a parked client that has not sent anything yet: parked, it takes
	// little, and the machine may be busy.
	newcomerFor = 250 * time.Millisecond
	// idleFor is how long a client that has been served must be idle before it may be evicted.
	idleFor = time.Second
	// evictGrace is the time that an HTTP/2 client gets to end its connection itself.
	evictGrace = 100 * time.Millisecond
)

// delay is how a client delays the proxy.
type delay uint8

const (
	delayNone    delay = iota
	delayIdle          // it has no request
	delayHeaders       // its headers, or its TLS handshake, are not complete
	delayBody          // its request's body is not complete
	delayReading       // it reads nothing of what is written
)

// delays returns how the client delays the proxy, and since when. It returns delayNone for one that
// does not, or not for long.
func (c *conn) delays(now clock.Instant) (delay, clock.Instant) {
	d, since := c.delaying(now)
	limit := slowFor
	switch d {
	case delayNone:
		return delayNone, 0
	case delayIdle:
		limit = idleFor
	case delayReading:
		limit = c.server.clients.stalledAfter()
	}
	if now.Sub(since) < limit {
		return delayNone, 0
	}
	return d, since
}

// delaying is like delays, for however short a time.
func (c *conn) delaying(now clock.Instant) (delay, clock.Instant) {
	since := clock.Instant(c.idleFrom.Load())
	switch phase := c.client.Phase(); {
	case phase == downstream.PhaseHeaders, phase == downstream.PhaseIdle && !c.used.Load():
		if c.client.HasUnread() {
			return delayNone, 0 // the machine is busy
		}
		return delayHeaders, since
	case phase == downstream.PhaseIdle:
		return delayIdle, since
	}
	if h := c.http2.Load(); h != nil {
		return h.delaying(now)
	}
	if since := c.x.Upload().AwaitedSince(); !since.IsZero() {
		if c.client.HasUnread() {
			return delayNone, 0 // it has sent more than the upstream takes
		}
		return delayBody, since
	}
	since = c.client.WritingSince()
	if since.IsZero() || c.client.Raw != nil && !rawsocket.Unsent(c.client.Raw) {
		return delayNone, 0
	}
	return delayReading, since
}

// delaying returns how an HTTP/2 client delays the proxy: by every stream that is served, since it last had
// none, or by having none. Streams that wait for their slot do not protect it, unless all of them do, nor
// do those that have just begun to delay: there may always be one.
func (h *http2Conn) delaying(now clock.Instant) (all delay, since clock.Instant) {
	since = clock.Instant(h.emptyFrom.Load())
	switch {
	case h.running.Load() > 0:
	case h.used.Load():
		return delayIdle, since
	default:
		return delayHeaders, since
	}
	none := false
	h.each(func(c *conn) {
		d, _ := c.delaying(now)
		if d == delayReading { // a moment of it is no delay
			d, _ = c.delays(now)
		}
		none = none || d == delayNone
		all = d
	})
	if none {
		all = delayNone
	}
	return all, since
}

// end ends v, and what it is charged is free from now on. It reports false if it does not delay the
// proxy any more, or is ending already.
func (t *clients) end(v *victim) bool {
	c := v.c
	d, _ := c.delays(t.clock.Now())
	if d == delayNone || !c.evicted.CompareAndSwap(false, true) {
		return false
	}
	if c.parent == nil {
		t.slots.Leave(c.slot)
	}
	switch d {
	case delayIdle:
		t.evicting.idle.Add(1)
		c.endIdle()
		return true
	case delayReading:
		t.evicting.stalled.Add(1)
	default:
		t.evicting.slow.Add(1)
	}
	c.server.noteTurnedAway()
	c.endSlow(d)
	return true
}

// beginLeaving counts a parked client that is being evicted, until endLeaving.
func (c *conn) beginLeaving() {
	c.countedLeaving = true
	c.server.clients.parkedLeaves(1)
}

func (c *conn) endLeaving() {
	if c.countedLeaving {
		c.countedLeaving = false
		c.server.clients.parkedLeaves(-1)
	}
}

// endIdle ends an idle connection.
func (c *conn) endIdle() {
	if h := c.http2.Load(); h != nil {
		h.endIdle()
		return
	}
	c.wakeEvicted()
}

func (c *conn) wakeEvicted() {
	c.client.Wake(downstream.PhaseIdle)
	c.client.Wake(downstream.PhaseHeaders)
	if c.x.Upload().IsAwaited() {
		c.client.TurnAway()
	}
}

// endSlow ends a connection, or stream, whose client delays the proxy. If it can, the client gets a 503.
func (c *conn) endSlow(d delay) {
	h := c.http2.Load()
	switch {
	case h != nil:
		h.endSlow()
	case d != delayReading:
		c.wakeEvicted()
	case c.parent != nil:
		c.endStalledStream()
	default:
		c.client.Abort()
	}
}

// endStalledStream ends the stream whose client reads nothing. If it has ended meanwhile, the next request
// of the conn is left alone.
func (c *conn) endStalledStream() {
	h := c.parent.http2.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.evicted.Load() {
		_ = c.client.NC.SetWriteDeadline(downstream.Past)
	}
}

// endSlow sends GOAWAY to the client, ends its streams, each with a 503 if that is possible, and ends the
// connection soon after.
func (h *http2Conn) endSlow() {
	h.goAway()
	now := h.c.server.now()
	var streams []*conn
	h.each(func(c *conn) { streams = append(streams, c) })
	for _, c := range streams {
		if d, _ := c.delays(now); d != delayNone && c.evicted.CompareAndSwap(false, true) {
			c.endSlow(d)
		}
	}
	time.AfterFunc(evictGrace, func() { _ = h.c.client.Wire.Close() })
}

// endIdle sends GOAWAY to the client, and ends the connection soon after unless a stream has
// begun.
func (h *http2Conn) endIdle() {
	h.goAway()
	c := h.c
	time.AfterFunc(evictGrace, func() {
		if h.running.Load() == 0 {
			_ = c.client.Wire.Close()
			return
		}
		c.evicted.Store(false)
		h.charge()
	})
}
