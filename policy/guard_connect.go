package policy

import "time"

// connections is what a Guard knows of connections that could not be made. One
// address may stand for several servers, as a Service of Kubernetes does, so a
// connection that is refused tells of one of them. It tells of the upstream as a
// whole when nothing speaks against it since the attempt began: no connection was
// accepted, and no request that was sent since was answered. For that the proxy
// dials some more times before it reports the attempt (see Guard.DialRetried).
//
// Answers to what was sent before do not count: an application that shuts
// down refuses connections while it finishes its work.
type connections struct {
	watchedTo time.Duration // until then answers take the slow path, which knows when they were asked for
	servedAt  time.Duration // when the last of those that were answered well was sent
}

// watchServed is how long after a failed connection it is noted what is answered.
const watchServed = time.Second

// DialRetried notes that a connection for an attempt failed and is tried again.
func (g *Guard) DialRetried(now time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.connections.watchedTo = now + watchServed
	g.publish(now)
}

// Accepted notes that the upstream accepted a connection, TLS handshake included.
// Where connections were what failed, that is all there is to wait for: the breaker
// closes step by step. How long a response takes plays no part.
func (g *Guard) Accepted(now time.Duration) Signal {
	g.lastAcceptAt.Store(int64(now))
	if g.mode.Load()&modeSlow == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.allowsRequests() || g.options.ActiveProbe || !g.breaker.why.connecting() {
		return 0
	}
	before := g.eventAt
	g.beginSlowStart(now, true)
	return g.finish(now, before)
}

// accepts reports whether the upstream takes connections although that of an
// attempt failed.
func (g *Guard) accepts(p Permit, now time.Duration, e AttemptEnd) bool {
	return time.Duration(g.lastAcceptAt.Load()) > p.at || g.connections.servedAt > p.at ||
		e.Kind == DialFailed && g.respondedSince(p.at, now) // it took long, and connections that are in use work on
}

// connecting reports whether connections were what failed.
func (c OpenedBy) connecting() bool {
	return c == OpenedByRefused || c == OpenedByDial || c == OpenedByLost
}
