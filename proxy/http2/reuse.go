package http2

import (
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// freeStreams are streams of a connection that serve no request. The next request takes one, with all that
// its last one has made: it costs as much as a small request to make it anew. Those that are not needed go
// soon. They never leave their connection, so that nothing of a client reaches another one.
type freeStreams struct {
	streams  []*Stream
	least    int  // that were free at any time since the last trim
	trimming bool // trim will be called
}

// Discard keeps the stream from serving another request, because somebody may still have it. The worker
// calls it.
func (s *Stream) Discard() { s.discarded = true }

// newStream returns a stream for the request that was just opened. Only the goroutine that reads calls it,
// with mu held.
func (c *Conn) newStream(id uint32) *Stream {
	f := &c.free
	n := len(f.streams)
	if n == 0 {
		s := &Stream{conn: c}
		s.init(&c.link, s)
		s.open(id)
		return s
	}
	s := f.streams[n-1]
	f.streams[n-1] = nil
	f.streams = f.streams[:n-1]
	f.least = min(f.least, n-1)
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
	if s.head != nil {
		buffer.Put(s.head[:0])
		s.head = nil
	}
	if s.discarded {
		return
	}
	poison.Fill(s.in[:cap(s.in)])
	f := &c.free
	if f.streams = append(f.streams, s); !f.trimming && c.err == nil {
		f.trimming, f.least = true, 0
		time.AfterFunc(trimEvery, c.trimStreams)
	}
}

// trimStreams drops the streams that were not needed since the last trim.
func (c *Conn) trimStreams() {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.free
	f.streams = dropFirst(f.streams, min(f.least, len(f.streams))) // they are free longest
	if f.least = len(f.streams); f.least == 0 || c.err != nil {
		f.trimming, f.streams = false, nil
		return
	}
	time.AfterFunc(trimEvery, c.trimStreams)
}

// mostUnused is how many streams an Upstream keeps for other requests. They go with its last stream. Making each
// anew, with what its owner keeps there, cost 2 % of the CPU of h2c to h2c and what collects them.
const mostUnused = 512

// newStream returns a stream for a request: one whose request has ended in order, with what its owner made for it,
// or a new one. Its deadlines stay. It is called with mu held.
func (c *Upstream) newStream() *UpstreamStream {
	n := len(c.unused)
	if n == 0 {
		s := &UpstreamStream{conn: c}
		s.init(&c.link, s)
		return s
	}
	s := c.unused[n-1]
	c.unused[n-1] = nil
	c.unused = c.unused[:n-1]
	s.upstreamState = upstreamState{}
	return s
}

// keep keeps a stream that has ended for another request. It is called with mu held.
func (c *Upstream) keep(s *UpstreamStream) {
	poison.Fill(s.in[:cap(s.in)])
	if len(c.unused) < mostUnused {
		c.unused = append(c.unused, s)
	}
}

// dropFirst removes the first n of list.
func dropFirst[T any](list []T, n int) []T {
	rest := list[:copy(list, list[n:])]
	clear(list[len(rest):])
	return rest
}
