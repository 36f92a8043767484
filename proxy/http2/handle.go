package http2

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// handle handles one frame. An error ends the connection.
func (c *Conn) handle(f *frame, p []byte) error {
	if c.block != nil && f.kind != frameContinuation {
		return refuse(ProtocolError, "a header block was interrupted")
	}
	if !c.settled && f.kind != frameSettings {
		return refuse(ProtocolError, "the first frame is not SETTINGS")
	}
	switch f.kind {
	case frameData:
		return c.data(f, p)
	case frameHeaders:
		return c.headers(f, p)
	case frameContinuation:
		return c.continuation(f, p)
	case framePriority:
		return c.priority(f, p)
	case frameRSTStream:
		return c.rstStream(f, p)
	case frameSettings:
		return c.settings(f, p)
	case framePing:
		return c.ping(f, p)
	case frameGoAway:
		if f.stream != 0 || len(p) < 8 {
			return refuse(ProtocolError, "GOAWAY is malformed")
		}
		return nil // it opens no more streams
	case frameWindowUpdate:
		return c.windowUpdate(f, p)
	case framePushPromise:
		return refuse(ProtocolError, "a client cannot push")
	}
	return nil // extensions are ignored (RFC 9113 section 5.5)
}

// data takes a piece of a body. The window of the connection is credited at once, so that what is not read
// holds up its own stream alone.
func (c *Conn) data(f *frame, p []byte) error {
	if f.stream == 0 {
		return refuse(ProtocolError, "DATA without a stream")
	}
	body, err := f.unpad(p)
	if err != nil {
		return err
	}
	s, err := c.dataOf(f, body)
	if s != nil {
		s.count()
	}
	return err
}

// dataOf gives a piece of a body to its stream, and returns the stream if it took it.
func (c *Conn) dataOf(f *frame, body []byte) (*Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creditConnection(f.length)
	s := c.streams[f.stream]
	switch {
	case s == nil:
		return nil, c.closedStream(f)
	case s.resetByClient:
		return nil, c.closedStream(f)
	case s.closed:
		return nil, nil // we reset it, and the client did not know yet
	case s.remoteEnded:
		c.reset(s, StreamClosed)
		return nil, nil
	}
	s.receive(body, f.length, f.has(flagEndStream))
	return s, nil
}

// creditConnection counts n bytes that the client sent. It is called with mu held.
func (c *Conn) creditConnection(n int) {
	if c.received += n; c.received >= connectionWindow/4 {
		credit := c.received
		c.received = 0
		c.control(16, func(dst []byte) []byte { return appendWindowUpdate(dst, 0, credit) })
	}
}

// closedStream answers a frame of a stream that has ended or never was. It is called with mu held.
func (c *Conn) closedStream(f *frame) error {
	if f.stream > c.last || f.stream%2 == 0 {
		return refuse(ProtocolError, "a frame of a stream that was not opened")
	}
	if f.kind == frameData && !c.wasReset(f.stream) {
		c.sendReset(f.stream, StreamClosed)
	}
	return nil
}

// sendReset tells the client that a stream has ended. It is called with mu held.
func (c *Conn) sendReset(id uint32, code Code) {
	c.control(16, func(dst []byte) []byte { return appendReset(dst, id, code) })
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

func (c *Conn) headers(f *frame, p []byte) error {
	if f.stream%2 == 0 {
		return refuse(ProtocolError, "HEADERS of a stream that a client cannot open")
	}
	block, err := f.unpad(p)
	if err != nil {
		return err
	}
	if f.has(flagPriority) {
		if len(block) < 5 {
			return refuse(FrameSizeError, "HEADERS are too short")
		}
		if binary.BigEndian.Uint32(block)&maxStreamID == f.stream {
			return refuse(ProtocolError, "a stream depends on itself")
		}
		block = block[5:]
	}
	c.opening = *f
	return c.addBlock(block, f.has(flagEndHeaders))
}

func (c *Conn) continuation(f *frame, p []byte) error {
	if c.block == nil || f.stream != c.opening.stream {
		return refuse(ProtocolError, "CONTINUATION without HEADERS")
	}
	return c.addBlock(p, f.has(flagEndHeaders))
}

// addBlock adds a piece of a header block, and handles it when it is whole. Blocks are kept as they came,
// since only a whole one can be decoded; what they may grow to is bounded.
func (c *Conn) addBlock(p []byte, whole bool) error {
	if len(c.block)+len(p) > c.o.HeaderBytes+frameSize {
		return refuse(EnhanceYourCalm, "a header block larger than headers may be")
	}
	if !whole {
		c.block = append(c.block, p...)
		if c.block == nil {
			c.block = []byte{}
		}
		return nil
	}
	if c.block != nil {
		p = append(c.block, p...)
		c.block = nil
	}
	c.fields.reset(c.o.HeaderBytes)
	if _, err := c.decoder.Write(p); err != nil {
		return refuse(CompressionError, err.Error())
	}
	if err := c.decoder.Close(); err != nil {
		return refuse(CompressionError, err.Error())
	}
	err := c.headersCame()
	c.fields.release()
	return err
}

// headersCame opens a stream with the fields just decoded, or ends one with its trailers.
func (c *Conn) headersCame() error {
	id, ends := c.opening.stream, c.opening.has(flagEndStream)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil { // nobody would end a stream that begins now
		return c.err
	}
	if s := c.streams[id]; s != nil {
		if s.resetByClient {
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
	if c.open >= c.o.Streams || len(c.queued) >= c.o.Streams || c.lingering {
		c.sendReset(id, RefusedStream)
		return nil
	}
	if c.fields.tooLarge {
		c.respondTooLarge(id, ends)
		return nil
	}
	s := c.newStream(id)
	if why := s.begin(&c.fields, ends); why != NoError {
		c.sendReset(id, why)
		return nil
	}
	c.streams[id] = s
	c.open++
	c.idleSince = noTime
	if s.mustEnd {
		s.vain = time.AfterFunc(emptyWithin, s.endInVain)
		return nil
	}
	c.start(s)
	return nil
}

func (c *Conn) priority(f *frame, p []byte) error {
	if f.stream == 0 {
		return refuse(ProtocolError, "PRIORITY without a stream")
	}
	if len(p) != 5 {
		return c.streamFault(f.stream, FrameSizeError)
	}
	if binary.BigEndian.Uint32(p)&maxStreamID == f.stream {
		return c.streamFault(f.stream, ProtocolError)
	}
	return nil // priorities are ignored (RFC 9113 section 5.3.2)
}

// streamFault resets a stream because of a fault of the client.
func (c *Conn) streamFault(id uint32, code Code) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		c.reset(s, code)
	} else {
		c.sendReset(id, code)
	}
	return nil
}

// reset ends a stream, and tells the client. It is called with mu held.
func (c *Conn) reset(s *Stream, code Code) {
	if s.closed {
		return
	}
	s.end(errGone)
	c.sendReset(s.id, code)
}

func (c *Conn) rstStream(f *frame, p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case f.stream == 0 || f.stream > c.last || f.stream%2 == 0:
		return refuse(ProtocolError, "RST_STREAM of a stream that was not opened")
	case len(p) != 4:
		return refuse(FrameSizeError, "RST_STREAM is malformed")
	}
	if s := c.streams[f.stream]; s != nil {
		s.resetByClient = true
		s.end(errGone)
	}
	return nil
}

func (c *Conn) settings(f *frame, p []byte) error {
	switch {
	case f.stream != 0:
		return refuse(ProtocolError, "SETTINGS of a stream")
	case f.has(flagAck) && len(p) > 0, len(p)%6 != 0:
		return refuse(FrameSizeError, "SETTINGS are malformed")
	case len(p) > 6*mostSettings:
		return refuse(EnhanceYourCalm, "more SETTINGS at once than there are")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.has(flagAck) {
		return nil
	}
	c.settled = true
	for ; len(p) > 0; p = p[6:] {
		if err := c.setting(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	c.control(16, func(dst []byte) []byte { return appendFrame(dst, frameSettings, flagAck, 0, 0) })
	return nil
}

// mostSettings is how many settings one frame may have. Each may cost a look at every stream; net/http's
// limit is the same.
const mostSettings = 100

// setting takes one setting of the client. It is called with mu held.
func (c *Conn) setting(id uint16, value uint32) error {
	switch id {
	case settingHeaderTableSize:
		c.tableShrinks = c.tableShrinks || value < defaultHeaderTable
	case settingEnablePush, settingEnableConnect:
		if value > 1 {
			return refuse(ProtocolError, "a setting is neither 0 nor 1")
		}
	case settingInitialWindowSize:
		if value > maxWindow {
			return refuse(FlowControlError, "a window larger than allowed")
		}
		more := int64(value) - c.streamWindow
		c.streamWindow = int64(value)
		for _, s := range c.streams {
			if s.window += more; s.window > maxWindow {
				return refuse(FlowControlError, "a window grew larger than allowed")
			}
			s.wake()
		}
	case settingMaxFrameSize:
		if value < frameSize || value > 1<<24-1 {
			return refuse(ProtocolError, "a frame size that is not allowed")
		}
	}
	return nil
}

func (c *Conn) ping(f *frame, p []byte) error {
	switch {
	case f.stream != 0:
		return refuse(ProtocolError, "PING of a stream")
	case len(p) != 8:
		return refuse(FrameSizeError, "PING is malformed")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.has(flagAck) {
		c.pinged = false
		return nil
	}
	c.control(32, func(dst []byte) []byte { return append(appendFrame(dst, framePing, flagAck, 0, 8), p...) })
	return nil
}

func (c *Conn) windowUpdate(f *frame, p []byte) error {
	if len(p) != 4 {
		return refuse(FrameSizeError, "WINDOW_UPDATE is malformed")
	}
	n := int64(binary.BigEndian.Uint32(p) & maxWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream == 0 {
		if n == 0 {
			return refuse(ProtocolError, "WINDOW_UPDATE of 0")
		}
		if c.window += n; c.window > maxWindow {
			return refuse(FlowControlError, "the window of the connection grew larger than allowed")
		}
		c.wakeBlocked()
		return nil
	}
	s := c.streams[f.stream]
	switch {
	case s == nil:
		return c.closedStream(f)
	case n == 0:
		c.reset(s, ProtocolError)
	default:
		if s.window += n; s.window > maxWindow {
			c.reset(s, FlowControlError)
			return nil
		}
		s.wake()
	}
	return nil
}

var tooLarge = []http1.Header{http1.NewHeader("Content-Length", "0")}

// respondTooLarge responds to a request whose headers exceed the limit, without a worker. It is called with
// mu held.
func (c *Conn) respondTooLarge(id uint32, ends bool) {
	if c.o.TooLarge != nil {
		c.o.TooLarge()
	}
	block := c.encode(431, tooLarge, func(*http1.Header) bool { return false })
	c.control(frameHeader+64, func(dst []byte) []byte {
		return append(appendFrame(dst, frameHeaders, flagEndHeaders|flagEndStream, id, len(block)), block...)
	})
	if !ends {
		c.sendReset(id, NoError)
	}
}
