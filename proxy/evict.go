package proxy

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/downstream"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
)

const (
	// evictEvery is how often, at most, connections are searched for ones to evict.
	evictEvery = 10 * time.Millisecond
	// evictShare limits how many are evicted at once, to one in so many of all connections. A
	// burst of clients is thus not let in one by one, each after a search of all others.
	evictShare = 4
	// evictGrace is the time that an idle HTTP/2 client gets to end its connection itself.
	evictGrace = 100 * time.Millisecond
	// slowFor is how long a client must keep the proxy waiting, for the rest of its headers or body or
	// to read what is written, before it may be evicted. It has its whole timeout while no other
	// client needs its slot.
	slowFor = 50 * time.Millisecond
	// idleFor is how long a client that has been served must be idle before it may be evicted.
	idleFor = time.Second
	// leastUploadRate is the rate, in bytes per second, below which a body may be evicted.
	leastUploadRate = 1 << 10
	// parkSoonAfter is how long a client is idle before it is parked while slots are short.
	parkSoonAfter = 20 * time.Millisecond
)

// eviction counts the connections that ended because others needed their slots. Idle ones go first, in
// the order of their idle time, because they lose nothing. Then come those that keep the proxy waiting,
// in the order of their progress: whoever moves the fewest bytes per second goes first, whatever it is
// doing.
type eviction struct {
	idle    atomic.Uint64
	slow    atomic.Uint64 // kept the proxy waiting for headers, a body or a handshake
	stalled atomic.Uint64 // read nothing of their responses
	queued  atomic.Uint64 // had no slot yet
	leaving atomic.Int64  // parked clients that are ending

	stalledFor atomic.Int64 // slowFor; only tests change it

	mu   sync.Mutex // guards last, and the progress of all connections
	last time.Time
}

// due reports whether it is time for another search.
func (e *eviction) due() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if now.Sub(e.last) < evictEvery {
		return false
	}
	e.last = now
	return true
}

// parkAfter returns after which idle time a connection is parked, at most usual.
func (t *clients) parkAfter(usual time.Duration) time.Duration {
	if t.slots.Short() {
		return min(usual, parkSoonAfter)
	}
	return usual
}

// delay is how a client delays the proxy.
type delay uint8

const (
	delayNone    delay = iota
	delayIdle          // it has no request
	delayHeaders       // its headers, or its TLS handshake, are not complete
	delayBody          // its request's body is not complete
	delayReading       // it reads nothing of what is written
)

// victim is a connection, or stream, that may be evicted.
type victim struct {
	c     *conn
	delay delay
	since clock.Instant
	heavy bool    // TLS or HTTP/2, which need more memory
	rate  float64 // bytes per second; not of idle ones
}

// evict makes room for up to n clients that wait for a slot. memoryShort means that memory, not the
// number of clients, is short: idle clients with TLS or HTTP/2 are then evicted before all others.
func (t *clients) evict(n int, memoryShort bool) {
	if !t.evicting.due() {
		return
	}
	idle, slow, ending := t.dispensable()
	slices.SortFunc(idle, func(a, b victim) int {
		if memoryShort && a.heavy != b.heavy {
			if a.heavy {
				return -1
			}
			return 1
		}
		return int(a.since.Sub(b.since))
	})
	n = min(n, max(1, int(t.connected.count.Load())/evictShare)) - ending - int(t.evicting.leaving.Load())
	for ; n > 0 && (len(idle) > 0 || !memoryShort) && t.evictIdle(&idle, memoryShort); n-- {
		t.evicting.idle.Add(1)
	}
	n -= t.evictSlow(slow, n)
	for ; n > 0 && t.evictIdle(&idle, memoryShort); n-- {
		t.evicting.idle.Add(1)
	}
}

// evictStreams makes room for HTTP/2 streams.
func (t *clients) evictStreams() {
	if !t.evicting.due() {
		return
	}
	_, slow, _ := t.dispensable()
	slow = slices.DeleteFunc(slow, func(v victim) bool { return v.c.client.Stream == nil })
	t.evictSlow(slow, max(1, t.streams.most/evictShare))
}

// evictSlowUpload evicts a client whose body comes slowly. It reports whether there was one.
func (t *clients) evictSlowUpload() bool {
	if !t.evicting.due() {
		return false
	}
	_, slow, _ := t.dispensable()
	slow = slices.DeleteFunc(slow, func(v victim) bool { return v.delay != delayBody })
	return t.evictSlow(slow, 1) > 0
}

// evictIdle evicts the first of idle or the client parked longest, whichever is idle longer. It
// reports false if there is neither. If memory is short, parked clients are evicted last, because
// they need almost none.
func (t *clients) evictIdle(idle *[]victim, memoryShort bool) bool {
	if len(*idle) == 0 {
		return t.parked.Evict(func(idlepoller.Waiter) bool { return true })
	}
	v := (*idle)[0]
	if !memoryShort && t.parked.Evict(func(g idlepoller.Waiter) bool { return g.(*parked).since.Before(v.since) }) {
		return true
	}
	*idle = (*idle)[1:]
	v.c.endIdle()
	return true
}

// evictSlow evicts up to n clients that delay the proxy, those first that make the least progress. It
// returns how many.
func (t *clients) evictSlow(slow []victim, n int) int {
	n = max(0, min(n, len(slow)))
	slices.SortFunc(slow, func(a, b victim) int {
		return cmp.Or(cmp.Compare(a.rate, b.rate), cmp.Compare(a.since, b.since))
	})
	for _, v := range slow[:n] {
		if v.delay == delayReading {
			t.evicting.stalled.Add(1)
		} else {
			t.evicting.slow.Add(1)
		}
		v.c.endSlow(v.delay)
	}
	return n
}

// dispensable lists the connections that are idle and not parked, and the connections and streams
// whose client delays the proxy. ending counts those that are already being evicted.
func (t *clients) dispensable() (idle, slow []victim, ending int) {
	t.evicting.mu.Lock()
	defer t.evicting.mu.Unlock()
	now := t.clock.Now()
	t.connected.each(func(c *conn) {
		v := victim{c: c}
		switch v.delay, v.since = c.delays(now); {
		case v.delay == delayNone:
		case c.evicted.Load():
			ending++
			c.wakeEvicted() // the first wake-up may have come before it waited
		case v.delay == delayIdle:
			v.heavy = c.client.TLS != nil || c.http2.Load() != nil
			idle = append(idle, v)
		default:
			if v.rate = c.rate(t.clock.Since(now), v.since); v.delay != delayBody || v.rate < leastUploadRate {
				slow = append(slow, v)
			}
		}
	})
	return idle, slow, ending
}

// rate returns how many bytes per second the connection moves; for a connection without such a count,
// 0. It is called with evicting.mu held.
func (c *conn) rate(now time.Duration, since clock.Instant) float64 {
	if c.parent != nil {
		return c.parent.rate(now, since)
	}
	if c.client.Raw == nil {
		return 0
	}
	moved, _ := rawsocket.Moved(c.client.Raw)
	return c.progress.Rate(moved, now)
}

// beginLeaving counts a parked client that is being evicted, until endLeaving.
func (c *conn) beginLeaving() {
	c.countedLeaving = true
	c.server.clients.evicting.leaving.Add(1)
}

func (c *conn) endLeaving() {
	if c.countedLeaving {
		c.countedLeaving = false
		c.server.clients.evicting.leaving.Add(-1)
	}
}

// delays returns how the client delays the proxy, and since when. It returns delayNone for one that
// does not, or not for long.
func (c *conn) delays(now clock.Instant) (delay, clock.Instant) {
	since := clock.Instant(c.idleFrom.Load())
	switch phase := c.client.Phase.Load(); {
	case phase == downstream.PhaseHeaders, phase == downstream.PhaseIdle && !c.used.Load():
		return longEnough(delayHeaders, since, now, slowFor)
	case phase == downstream.PhaseIdle:
		return longEnough(delayIdle, since, now, idleFor)
	}
	if h := c.http2.Load(); h != nil {
		if since := clock.Instant(h.emptyFrom.Load()); h.running.Load() == 0 {
			return longEnough(delayIdle, since, now, idleFor)
		}
		return delayNone, 0
	}
	if since := c.x.Upload().AwaitedSince(); !since.IsZero() {
		return longEnough(delayBody, since, now, slowFor)
	}
	since = clock.Instant(c.client.Writing.Load())
	if since.IsZero() || c.client.Raw != nil && !rawsocket.Unsent(c.client.Raw) {
		return delayNone, 0
	}
	return longEnough(delayReading, since, now, time.Duration(c.server.clients.evicting.stalledFor.Load()))
}

// longEnough returns d and since if that was at least limit ago.
func longEnough(d delay, since, now clock.Instant, limit time.Duration) (delay, clock.Instant) {
	if now.Sub(since) < limit {
		return delayNone, 0
	}
	return d, since
}

// endIdle ends an idle connection.
func (c *conn) endIdle() {
	c.evicted.Store(true)
	if h := c.http2.Load(); h != nil {
		h.endIdle()
		return
	}
	c.wakeEvicted()
}

func (c *conn) wakeEvicted() {
	c.client.Wake(downstream.PhaseIdle)
	c.client.Wake(downstream.PhaseHeaders)
	if !c.x.Upload().AwaitedSince().IsZero() {
		c.client.TurnAway()
	}
}

// endSlow ends a connection, or stream, whose client delays the proxy. If it can, the client gets a 503.
func (c *conn) endSlow(d delay) {
	c.server.noteTurnedAway()
	c.evicted.Store(true)
	switch {
	case d != delayReading:
		c.wakeEvicted()
	case c.client.Stream != nil:
		_ = c.client.NC.SetWriteDeadline(downstream.Past)
	default:
		c.client.Abort()
	}
}

// endIdle sends GOAWAY to the client, and ends the connection soon after unless a stream has
// begun.
func (h *http2Conn) endIdle() {
	h.goAway()
	time.AfterFunc(evictGrace, func() {
		if h.running.Load() == 0 {
			_ = h.c.client.Wire.Close()
		} else {
			h.c.evicted.Store(false)
		}
	})
}
