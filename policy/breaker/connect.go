package breaker

import (
	"sync/atomic"
	"time"
)

// connections holds the evidence of failed connections. One address may stand for several
// servers, as a Kubernetes Service does, so a refused connection is evidence about one of
// them. It is evidence about the upstream as a whole if nothing contradicts it since the
// attempt began: no connection was accepted, and no request sent since was answered. To
// find out, the proxy dials some more times before it reports the attempt (see
// Guard.DialRetried).
//
// Responses to requests sent earlier do not count: an application that shuts down refuses
// connections while it finishes its work.
type connections struct {
	lastAcceptAt atomic.Int64  // when the upstream last accepted a connection
	watchedTo    time.Duration // until then responses take the slow path, which knows when their requests were sent
	servedAt     time.Duration // when the latest request with a good response was sent
}

// watchServed is how long responses are watched after a failed connection.
const watchServed = time.Second

// DialRetried records that a connection for an attempt failed and is tried again.
func (g *Guard) DialRetried(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.core.connections.watchedTo = now + watchServed
	g.core.publish(now)
}

// Accepted records that the upstream accepted a connection, TLS handshake included. If
// failed connections opened the breaker, slow start begins at once, however long a response
// takes.
func (g *Guard) Accepted(now time.Duration) Signal {
	g.core.connections.lastAcceptAt.Store(int64(now))
	if g.counters.mode.Load()&modeSlow == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.core.breaker.allowsRequests() || g.options.ActiveProbe || !g.core.breaker.why.connecting() {
		return 0
	}
	before := g.core.eventAt
	g.core.beginSlowStart(now, true)
	return g.core.finish(now, before)
}

// connecting reports whether the evidence is failed connections.
func (c OpenedBy) connecting() bool {
	return c == OpenedByRefused || c == OpenedByDial || c == OpenedByLost
}

// acceptedSince reports whether a connection was accepted after at, or a request sent after
// at got a good response.
func (c *connections) acceptedSince(at time.Duration) bool {
	return time.Duration(c.lastAcceptAt.Load()) > at || c.servedAt > at
}

// accepts reports whether the upstream accepts connections although the attempt's
// connection failed.
func (g *core) accepts(p Permit, now time.Duration, e AttemptEnd) bool {
	if g.connections.acceptedSince(p.at) {
		return true
	}
	if e.Kind != DialFailed {
		return false
	}
	// The dial failed slowly while existing connections work. lastResponseAt is as precise
	// as the refresh interval.
	g.refresh(now)
	return g.silence.stall.lastResponseAt > p.at
}
