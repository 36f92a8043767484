package proxy

import (
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
	evictShare = 16
	// evictGrace is the time that an idle HTTP/2 client gets to end its connection itself.
	evictGrace = 100 * time.Millisecond
	// stalledFor is how long a client must read nothing of what is written to it before its
	// connection may be evicted. It has the whole WriteTimeout while no other client needs its
	// slot.
	stalledFor = 100 * time.Millisecond
	// idleFor is how long a client must be idle before it may be evicted: a client that has just
	// connected is about to send a request.
	idleFor = time.Second
	// slowHeadersFor is the same for a client that has begun a request and not ended its headers.
	slowHeadersFor = time.Second
)

// eviction counts the connections that ended because others needed their slots: idle ones first,
// in the order of their idle time, then those that read nothing of their responses.
type eviction struct {
	idle    atomic.Uint64
	stalled atomic.Uint64
	leaving atomic.Int64 // parked clients that are ending

	stalledFor atomic.Int64 // the constant; only tests change it

	mu   sync.Mutex // guards last
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

// victim is a connection, or stream, that may be evicted.
type victim struct {
	c     *conn
	since clock.Instant
	heavy bool // TLS or HTTP/2, which need more memory
}

// evict makes room for up to n clients that wait for a slot. heavyFirst means that memory is
// short: idle clients with TLS or HTTP/2 are then evicted before all others.
func (t *clients) evict(n int, heavyFirst bool) {
	if !t.evicting.due() {
		return
	}
	idle, stalled, ending := t.dispensable()
	slices.SortFunc(idle, func(a, b victim) int {
		if heavyFirst && a.heavy != b.heavy {
			if a.heavy {
				return -1
			}
			return 1
		}
		return int(a.since.Sub(b.since))
	})
	n = min(n, max(1, int(t.connected.count.Load())/evictShare)) - ending - int(t.evicting.leaving.Load())
	for ; n > 0 && t.evictIdle(&idle, heavyFirst); n-- {
		t.evicting.idle.Add(1)
	}
	if n > 0 {
		t.evictStalled(stalled, n)
	}
}

// evictStreams makes room for HTTP/2 streams.
func (t *clients) evictStreams() {
	if !t.evicting.due() {
		return
	}
	_, stalled, _ := t.dispensable()
	stalled = slices.DeleteFunc(stalled, func(v victim) bool { return v.c.client.Stream == nil })
	t.evictStalled(stalled, max(1, t.streams.most/evictShare))
}

// evictIdle evicts the first of idle or the client parked longest, whichever is idle longer. It
// reports false if there is neither. If memory is short, parked clients are evicted last, because
// they need almost none.
func (t *clients) evictIdle(idle *[]victim, heavyFirst bool) bool {
	if len(*idle) == 0 {
		return t.parked.Evict(func(idlepoller.Waiter) bool { return true })
	}
	v := (*idle)[0]
	if !heavyFirst && t.parked.Evict(func(g idlepoller.Waiter) bool { return g.(*parked).since.Before(v.since) }) {
		return true
	}
	*idle = (*idle)[1:]
	v.c.endIdle()
	return true
}

// evictStalled evicts up to n stalled clients, those stalled longest first.
func (t *clients) evictStalled(stalled []victim, n int) {
	slices.SortFunc(stalled, func(a, b victim) int { return int(a.since.Sub(b.since)) })
	for _, v := range stalled[:min(n, len(stalled))] {
		t.evicting.stalled.Add(1)
		v.c.endStalled()
	}
}

// dispensable lists the connections that are idle and not parked, and those whose client reads
// nothing. ending counts those that are already being evicted.
func (t *clients) dispensable() (idle, stalled []victim, ending int) {
	now := t.clock.Now()
	t.connected.each(func(c *conn) {
		since, isIdle := c.idleSince(now)
		switch {
		case isIdle && c.evicted.Load():
			ending++
			c.wakeEvicted() // the first wake-up may have come before it waited
		case isIdle:
			idle = append(idle, victim{c, since, c.client.TLS != nil || c.http2.Load() != nil})
		default:
			if since, is := c.stalledSince(now); is && c.evicted.Load() {
				ending++
			} else if is {
				stalled = append(stalled, victim{c: c, since: since})
			}
		}
	})
	return idle, stalled, ending
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

// idleSince reports whether the connection can be closed without loss, and since when.
func (c *conn) idleSince(now clock.Instant) (clock.Instant, bool) {
	since := clock.Instant(c.idleFrom.Load())
	switch c.client.Phase.Load() {
	case downstream.PhaseIdle:
		return since, now.Sub(since) > idleFor
	case downstream.PhaseHeaders:
		return since, now.Sub(since) > slowHeadersFor
	}
	if h := c.http2.Load(); h != nil {
		return h.idleSince(now)
	}
	return 0, false
}

// stalledSince reports whether the client reads nothing of what is being written to it, and since
// when.
func (c *conn) stalledSince(now clock.Instant) (clock.Instant, bool) {
	since := clock.Instant(c.client.Writing.Load())
	if since.IsZero() || int64(now.Sub(since)) < c.server.clients.evicting.stalledFor.Load() || c.client.Raw != nil && !rawsocket.Unsent(c.client.Raw) {
		return 0, false
	}
	return since, true
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
}

// endStalled ends a connection, or stream, whose client reads nothing.
func (c *conn) endStalled() {
	c.evicted.Store(true)
	if c.client.Stream != nil {
		_ = c.client.NC.SetWriteDeadline(downstream.Past)
		return
	}
	c.client.Abort()
}

// idleSince reports whether the connection has no streams, and since when.
func (h *http2Conn) idleSince(now clock.Instant) (clock.Instant, bool) {
	since := clock.Instant(h.emptyFrom.Load())
	return since, h.running.Load() == 0 && now.Sub(since) > idleFor
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
