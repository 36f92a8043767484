package proxy

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/idlepoller"
	"github.com/retryproxy/retryproxy/proxy/internal/rawsocket"
	"github.com/retryproxy/retryproxy/proxy/slots"
)

const (
	// evictEvery is how often, at most, connections are searched for ones to evict.
	evictEvery = 10 * time.Millisecond
	// searchShare limits the time of searches, to one in so many parts of all time. A search may seem long
	// because the machine is busy, so the next one is at most ten times evictEvery later.
	searchShare = 20
	// evictShare limits how many are evicted after a search, to one in so many. A burst of newcomers thus
	// does not evict those whose standing is good.
	evictShare = 4
	// forgetAfter is how long what a search found is kept.
	forgetAfter = 100 * time.Millisecond
	// leastUploadRate is the rate, in bytes per second, below which a body may be evicted.
	leastUploadRate = 1 << 10
	// parkSoonAfter is how long a client is idle before it is parked while slots are short.
	parkSoonAfter = 20 * time.Millisecond
	// parkedPart is the divisor of the memory for clients that gives how much parked ones may have of it
	// when it is short.
	parkedPart = 4
)

// eviction counts the connections that ended because others needed their slots, and has the ones that
// may be next. Idle ones go first, in the order of their idle time, because they lose nothing. Then come
// those that keep the proxy waiting, in the order of their progress: whoever moves the fewest bytes per
// second goes first, whatever it is doing.
type eviction struct {
	idle    atomic.Uint64
	slow    atomic.Uint64 // kept the proxy waiting for headers, a body or a handshake
	stalled atomic.Uint64 // read nothing of their responses
	queued  atomic.Uint64 // had no slot yet
	leaving atomic.Int64  // parked clients that are ending

	stalledFor atomic.Int64 // 0: slowFor; only tests change it

	mu         sync.Mutex            // guards all below, and the progress of all connections
	found      [victimKinds][]victim // those that go first of each kind, in their order
	ending     int                   // were evicted and had not ended when the others were found
	searchedAt clock.Instant
	searchAt   clock.Instant // the earliest time of the next search
	forgets    bool          // forgetVictims will be called
}

// victim is a connection, or stream, that may be evicted.
type victim struct {
	c        *conn
	delay    delay
	since    clock.Instant
	standing float64 // what it moves; see slots.Progress
}

// compare orders idle ones by their time, then the others by what they move.
func (v victim) compare(o victim) int {
	switch {
	case v.delay == delayIdle && o.delay == delayIdle:
		return cmp.Compare(v.since, o.since)
	case v.delay == delayIdle:
		return -1
	case o.delay == delayIdle:
		return 1
	}
	return cmp.Or(cmp.Compare(v.standing, o.standing), cmp.Compare(v.since, o.since))
}

// The kinds of victims, by what they make room for.
const (
	kindNewcomer = iota
	kindServed
	kindStream
	victimKinds
)

func (v *victim) kind() int {
	switch {
	case v.c.parent != nil:
		return kindStream
	case v.c.slot.Served():
		return kindServed
	}
	return kindNewcomer
}

func (v *victim) isConnection() bool { return v.c.parent == nil }
func (v *victim) isNewcomer() bool   { return v.kind() == kindNewcomer }
func (v *victim) isServed() bool     { return v.kind() == kindServed }
func (v *victim) isStream() bool     { return v.kind() == kindStream }
func (v *victim) isUpload() bool     { return v.delay == delayBody && v.c.http2.Load() == nil }

// parkAfter returns after which idle time a connection is parked, at most usual.
func (t *clients) parkAfter(usual time.Duration) time.Duration {
	if t.slots.Short() {
		return min(usual, parkSoonAfter)
	}
	return usual
}

// evict evicts the first that fits and returns whether there was one. What it was charged is free from
// then on.
func (t *clients) evict(fits func(*victim) bool) bool {
	for {
		v, has := t.nextVictim(fits)
		if !has {
			return false
		}
		if t.end(&v) {
			return true
		}
	}
}

// evictMany evicts clients until up to n that wait for a slot can have one. Their number is short, so
// all others have to wait until they are gone.
func (t *clients) evictMany(n int) {
	t.evicting.mu.Lock()
	fresh := t.search()
	n = min(n, max(1, int(t.connected.count.Load())/evictShare)) - t.evicting.ending - int(t.evicting.leaving.Load())
	t.evicting.mu.Unlock()
	for ; fresh && n > 0; n-- {
		if !t.evictParked(t.longestIdle()) && !t.evict((*victim).isConnection) && !t.evictParked(clock.Instant(1<<63-1)) {
			return
		}
	}
}

// turnedAway counts a client that leaves before it has a slot, or the memory for its request.
func (t *clients) turnedAway() { t.evicting.queued.Add(1) }

// parkedLeaves counts a parked client that is ending, with n 1, until it has ended, with n -1.
func (t *clients) parkedLeaves(n int64) { t.evicting.leaving.Add(n) }

// stalledAfter returns how long a client may read nothing of its response before it may be evicted.
func (t *clients) stalledAfter() time.Duration {
	return cmp.Or(time.Duration(t.evicting.stalledFor.Load()), slowFor)
}

// longestIdle returns since when the connection is idle that is idle longest and not parked; if there is
// none, the beginning of time.
func (t *clients) longestIdle() clock.Instant {
	t.evicting.mu.Lock()
	defer t.evicting.mu.Unlock()
	if all := t.evicting.found[kindServed]; len(all) > 0 && all[0].delay == delayIdle {
		return all[0].since
	}
	return 0
}

// evictParked evicts the client that is parked longest, if it is idle since a moment before that. One
// that has not sent anything yet has some time.
func (t *clients) evictParked(before clock.Instant) bool {
	late := t.clock.Now().Add(-newcomerFor)
	if !t.parked.Evict(func(g idlepoller.Waiter) bool {
		p := g.(*parked)
		return p.since.Before(before) && (p.used || !late.Before(p.since))
	}) {
		return false
	}
	t.evicting.idle.Add(1)
	return true
}

// evictForMemory evicts a client that holds memory of those that are served. It reports whether there was
// one whose memory is free at once. Parked ones have little each, and go only if they are very many.
func (t *clients) evictForMemory() bool {
	if t.evict((*victim).isServed) {
		return true
	}
	if t.slots.Exceeds(int64(t.parked.Len())*t.costs.parked, parkedPart) {
		t.evictParked(clock.Instant(1<<63 - 1))
	}
	return false
}

// nextVictim takes the next one that fits, of those that the last search found.
func (t *clients) nextVictim(fits func(*victim) bool) (victim, bool) {
	e := &t.evicting
	e.mu.Lock()
	defer e.mu.Unlock()
	t.search()
	first, at := -1, 0
	for kind, all := range e.found {
		if i := slices.IndexFunc(all, func(v victim) bool { return fits(&v) }); i >= 0 && (first < 0 || all[i].compare(e.found[first][at]) < 0) {
			first, at = kind, i
		}
	}
	if first < 0 {
		return victim{}, false
	}
	v := e.found[first][at]
	e.found[first] = slices.Delete(e.found[first], at, at+1)
	return v, true
}

// search finds the victims anew, unless it has just done so. It reports whether it did. It is called with
// evicting.mu held.
func (t *clients) search() bool {
	e, now := &t.evicting, t.clock.Now()
	if now.Before(e.searchAt) {
		return false
	}
	e.searchedAt, e.ending = now, 0
	if !e.forgets {
		e.forgets = true
		time.AfterFunc(forgetAfter, t.forgetVictims)
	}
	for kind, all := range e.found {
		clear(all)
		e.found[kind] = all[:0]
	}
	found := func(v victim) { e.found[v.kind()] = append(e.found[v.kind()], v) }
	t.connected.each(func(c *conn) {
		v := victim{c: c}
		switch v.delay, v.since = c.delays(now); {
		case v.delay == delayNone:
		case c.evicted.Load():
			if e.ending++; c.http2.Load() == nil {
				c.wakeEvicted() // the first wake-up may have come before it waited
			}
		case v.delay == delayIdle:
			found(v)
		default:
			var rate float64
			if rate, v.standing = c.rate(t.clock.Since(now)); v.delay != delayBody || rate < leastUploadRate {
				found(v)
			}
		}
	})
	for kind, all := range e.found {
		slices.SortFunc(all, victim.compare)
		keep := min(len(all), max(1, len(all)/evictShare))
		clear(all[keep:])
		e.found[kind] = all[:keep]
	}
	done := t.clock.Now()
	e.searchAt = done.Add(min(max(evictEvery, searchShare*done.Sub(now)), 10*evictEvery))
	return true
}

// forgetVictims drops what was found, so that connections that have ended are not kept.
func (t *clients) forgetVictims() {
	e := &t.evicting
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.clock.Now().Sub(e.searchedAt) < forgetAfter {
		time.AfterFunc(forgetAfter, t.forgetVictims)
		return
	}
	e.found, e.forgets = [victimKinds][]victim{}, false
}

// rate returns how many bytes per second the client moves, and its standing. It is called with
// evicting.mu held.
func (c *conn) rate(now time.Duration) (rate, standing float64) {
	return c.progress().Rate(c.moved(), now)
}

// progress returns that of the connection, or of the stream.
func (c *conn) progress() *slots.Progress {
	if s := c.client.Stream; s != nil {
		return &s.Kept().(*streamConn).progress
	}
	return &c.slot.Progress
}

// moved returns how many bytes the client has moved: over HTTP/2 those of bodies, since headers and what
// is responded to them cost a client nothing, otherwise all of the connection. 0: unknown.
func (c *conn) moved() (n uint64) {
	switch h := c.http2.Load(); {
	case h != nil:
		return h.moved()
	case c.client.Stream != nil:
		return c.client.Stream.Moved()
	case c.client.Raw != nil:
		n, _ = rawsocket.Moved(c.client.Raw)
	}
	return n
}

// beginProgress measures what the client moves from now on, since it delays the proxy by something new: by
// headers, a body or streams. What it moved before earns it nothing. Bytes that have arrived and were not
// used yet do count.
func (c *conn) beginProgress(now clock.Instant) {
	s := c.server
	if !s.clients.slots.Bounds() {
		return // nobody is evicted
	}
	before := uint64(0)
	if h, raw := c.http2.Load(), c.client.Raw; h != nil {
		before = h.moved()
	} else if raw != nil {
		moved, _ := rawsocket.Moved(raw)
		before = moved - min(moved, uint64(rawsocket.Unread(raw)+c.client.Buffered()))
	}
	c.progress().Begin(before, s.process.Clock.Since(now))
}
