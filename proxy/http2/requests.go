package http2

import (
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// headersCame opens a stream with the fields just decoded, or ends one with its trailers.
func (c *Conn) headersCame() error {
	id, ends := c.opening.stream, c.opening.has(FlagEndStream)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil { // nobody would end a stream that begins now
		return c.err
	}
	if s := c.streams[id]; s != nil {
		if of(s).resetByClient {
			return refuse(StreamClosed, "HEADERS of a stream that the client has reset")
		}
		if s.closed {
			return nil
		}
		if s.remoteEnded && s.complete {
			return refuse(StreamClosed, "HEADERS of a stream that has ended")
		}
		if s.remoteEnded {
			c.reset(s, StreamClosed)
			return nil
		}
		if !ends || !c.fields.validTrailers() {
			c.reset(s, ProtocolError)
			return nil
		}
		s.receiveTrailers(&c.fields)
		return nil
	}
	if id <= c.last && c.wasReset(id) {
		return nil
	}
	if id <= c.last {
		return refuse(StreamClosed, "HEADERS of a stream that has ended")
	}
	c.last = id
	if c.open >= c.o.Streams || c.lingering {
		c.sendReset(id, RefusedStream)
		return nil
	}
	if c.fields.tooLarge {
		c.respondTooLarge(id, ends)
		return nil
	}
	s := c.newStream(id)
	if why := s.begin(&c.fields, ends); why != NoError {
		c.keep(s)
		c.sendReset(id, why)
		return nil
	}
	c.streams[id] = &s.flow
	c.open++
	s.counted = true
	c.idleSince = noTime
	if s.mustEnd {
		s.vain = time.AfterFunc(emptyWithin, func() { c.endInVain(id) })
		return nil
	}
	c.start(s)
	return nil
}

// closedStream answers a frame of a stream that has ended or never was. It is called with mu held.
func (c *Conn) closedStream(f *frame) error {
	if err := c.opened(f); err != nil {
		return err
	}
	if f.kind == FrameData && !c.wasReset(f.stream) {
		c.sendReset(f.stream, StreamClosed)
	}
	return nil
}

// sendReset tells the client that a stream has ended. It is called with mu held.
func (c *Conn) sendReset(id uint32, code Code) {
	c.control(16, func(dst []byte) []byte { return appendReset(dst, id, code) })
	if code != NoError && code != InternalError { // those are for reasons of our own
		c.provoked++
	}
	if len(c.resets) < mostResets {
		c.resets = append(c.resets, id)
		return
	}
	c.resets[c.nextReset] = id
	c.nextReset = (c.nextReset + 1) % mostResets
}

// mostResets is of how many streams it is known that we reset them. What a client had sent of them before
// it knew is no fault (RFC 9113 section 5.4.2).
const mostResets = 256

// wasReset reports whether we reset a stream lately. It is called with mu held.
func (c *Conn) wasReset(id uint32) bool { return slices.Contains(c.resets, id) }

// rstStream implements side.
func (c *Conn) rstStream(f *frame, _ Code) error {
	if s := c.streams[f.stream]; s != nil {
		of(s).resetByClient = true
		s.self.end(errGone)
	}
	return c.opened(f)
}

// opened refuses a frame of a stream that the client has not opened.
func (c *Conn) opened(f *frame) error {
	if f.stream > c.last || f.stream%2 == 0 {
		return refuse(ProtocolError, "a frame of a stream that was not opened")
	}
	return nil
}

// ofClosed implements side: the client has reset the stream itself.
func (c *Conn) ofClosed(s *flow) bool { return of(s).resetByClient }

// goAway implements side: the client opens no more streams.
func (c *Conn) goAway([]byte) error { return nil }

// setting implements side.
func (c *Conn) setting(uint16, uint32) error { return nil }

func (c *Conn) settingsCame() {}

// of returns the stream of a client.
func of(s *flow) *Stream { return s.self.(*Stream) }

// respondTooLarge responds to a request whose headers exceed the limit, without a worker. The body is left
// out if the windows have no room for it. It is called with mu held.
func (c *Conn) respondTooLarge(id uint32, ends bool) {
	var headers []http1.Header
	var body []byte
	if c.o.TooLarge != nil {
		headers, body = c.o.TooLarge()
	}
	if int64(len(body)) > min(c.window, c.streamWindow) {
		body = nil
	}
	block := c.encode(func(dst []byte) []byte {
		dst = wire.AppendLines(wire.Block, wire.AppendStatus(dst, 431), headers)
		return wire.AppendInt(wire.Block, dst, "content-length", int64(len(body)))
	})
	c.window -= int64(len(body))
	c.control(2*frameHeader+len(block)+len(body), func(dst []byte) []byte {
		if len(body) == 0 {
			return append(appendFrame(dst, FrameHeaders, flagEndHeaders|FlagEndStream, id, len(block)), block...)
		}
		dst = append(appendFrame(dst, FrameHeaders, flagEndHeaders, id, len(block)), block...)
		return append(appendFrame(dst, FrameData, FlagEndStream, id, len(body)), body...)
	})
	if !ends {
		c.sendReset(id, NoError)
	}
}
