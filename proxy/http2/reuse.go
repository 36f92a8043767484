package http2

import (
	"time"
)

// freeStreams are streams of a connection that serve no request: S is *Stream or *UpstreamStream. The next request
// takes one, with all that its last one has made: it costs as much as a small request to make it anew, and 2 % of the
// CPU of h2c to h2c for one to an upstream. Those that are not needed go soon. They never leave their connection, so
// that nothing of a peer reaches another one. All of it is guarded by link.mu.
type freeStreams[S interface{ release() }] struct {
	streams  []S
	least    int  // that were free at any time since the last trim
	trimming bool // trim will be called
}

// take returns a stream that is free, or nil.
func (f *freeStreams[S]) take() (s S) {
	n := len(f.streams)
	if n == 0 {
		return s
	}
	s, f.streams[n-1] = f.streams[n-1], s
	f.streams = f.streams[:n-1]
	f.least = min(f.least, n-1)
	return s
}

// put keeps a stream of c for another request.
func (f *freeStreams[S]) put(c *link, s S) {
	if f.streams = append(f.streams, s); !f.trimming && c.err == nil {
		f.trimming, f.least = true, 0
		f.trimLater(c)
	}
}

// clear drops all streams.
func (f *freeStreams[S]) clear() {
	f.drop(len(f.streams))
	f.streams, f.least = nil, 0
}

// drop drops the n streams that are free longest.
func (f *freeStreams[S]) drop(n int) {
	for _, s := range f.streams[:n] {
		s.release()
	}
	f.streams = dropFirst(f.streams, n)
}

// release gives back what a stream keeps for its next request.
func (f *flow) release() { f.in.Put() }

// trimLater drops, after a while, the streams that were not needed until then, and so on while there are some.
func (f *freeStreams[S]) trimLater(c *link) {
	time.AfterFunc(trimEvery, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.drop(min(f.least, len(f.streams)))
		if f.least = len(f.streams); f.least == 0 || c.err != nil {
			f.trimming = false
			f.clear()
			return
		}
		f.trimLater(c)
	})
}

// Discard keeps the stream from serving another request, because somebody may still have it. The worker
// calls it.
func (s *Stream) Discard() { s.discarded = true }

// newStream returns a stream for the request that was just opened. Only the goroutine that reads calls it,
// with mu held.
func (c *Conn) newStream(id uint32) *Stream {
	s := c.free.take()
	if s == nil {
		s = &Stream{conn: c}
		s.init(&c.link, s)
		s.open(id)
		return s
	}
	s.open(id)
	s.readBy, s.writeBy = noTime, noTime
	s.streamState = streamState{}
	return s
}

// forget forgets a stream that has ended and is not served. It is called with mu held.
func (c *Conn) forget(s *Stream) {
	delete(c.streams, s.id)
	c.keep(s)
	if len(c.streams) == 0 {
		c.emptied()
	}
}

// keep keeps a stream that is not served for another request. It is called with mu held.
func (c *Conn) keep(s *Stream) {
	s.head.Put()
	if s.discarded {
		s.release()
		return
	}
	s.in.Wipe()
	c.free.put(&c.link, s)
}

// newStream returns a stream for a request: one whose request has ended in order, with what its owner made for it,
// or a new one. Its deadlines stay. It is called with mu held.
func (u *Upstream) newStream() *UpstreamStream {
	s := u.unused.take()
	if s == nil {
		s = &UpstreamStream{conn: u}
		s.init(&u.link, s)
		return s
	}
	s.upstreamState = upstreamState{}
	return s
}

// keep keeps a stream that has ended for another request. It is called with mu held.
func (u *Upstream) keep(s *UpstreamStream) {
	s.in.Wipe()
	u.unused.put(&u.link, s)
}

// dropFirst removes the first n of list.
func dropFirst[T any](list []T, n int) []T {
	rest := list[:copy(list, list[n:])]
	clear(list[len(rest):])
	return rest
}
