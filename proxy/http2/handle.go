package http2

import "encoding/binary"

// handle handles one frame. An error ends the connection.
func (c *link) handle(f *frame, p []byte) error {
	c.count(f)
	c.quiet = c.quiet && f.kind == framePing
	if c.block != nil && f.kind != frameContinuation {
		return refuse(ProtocolError, "a header block was interrupted")
	}
	if !c.settled && f.kind != frameSettings {
		return refuse(ProtocolError, "the first frame is not SETTINGS")
	}
	switch f.kind {
	case FrameData:
		return c.data(f, p)
	case FrameHeaders:
		return c.headers(f, p)
	case frameContinuation:
		return c.continuation(f, p)
	case framePriority:
		return c.priority(f, p)
	case FrameRSTStream:
		return c.streamReset(f, p)
	case frameSettings:
		return c.settings(f, p)
	case framePing:
		return c.ping(f, p)
	case frameGoAway:
		switch {
		case f.stream != 0:
			return refuse(ProtocolError, "GOAWAY of a stream")
		case len(p) < 8:
			return refuse(FrameSizeError, "GOAWAY is too short")
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.side.goAway(p)
	case FrameWindowUpdate:
		return c.windowUpdate(f, p)
	case framePushPromise:
		return refuse(ProtocolError, "nobody may push")
	}
	return nil // extensions are ignored (RFC 9113 section 5.5)
}

// data takes a piece of a body. The window of the connection is credited at once, so that what is not read
// holds up its own stream alone.
func (c *link) data(f *frame, p []byte) error {
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
func (c *link) dataOf(f *frame, body []byte) (*flow, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.creditConnection(f.length)
	s := c.streams[f.stream]
	switch {
	case s == nil:
		return nil, c.side.closedStream(f)
	case s.closed && c.side.ofClosed(s):
		return nil, c.side.closedStream(f)
	case s.closed:
		return nil, nil // we reset it, and the peer did not know yet
	case s.remoteEnded:
		c.reset(s, StreamClosed)
		return nil, nil
	case s.early:
		c.reset(s, ProtocolError)
		return nil, nil
	}
	s.receive(body, f.length, f.has(FlagEndStream))
	return s, nil
}

// creditConnection counts n bytes that the peer sent. It is called with mu held.
func (c *link) creditConnection(n int) {
	if c.received += n; c.received >= connectionWindow/4 {
		credit := c.received
		c.received = 0
		c.control(16, func(dst []byte) []byte { return appendWindowUpdate(dst, 0, credit) })
	}
}

func (c *link) headers(f *frame, p []byte) error {
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

func (c *link) continuation(f *frame, p []byte) error {
	if c.block == nil || f.stream != c.opening.stream {
		return refuse(ProtocolError, "CONTINUATION without HEADERS")
	}
	return c.addBlock(p, f.has(flagEndHeaders))
}

// addBlock adds a piece of a header block, and handles it when it is whole. Blocks are kept as they came,
// since only a whole one can be decoded; what they may grow to is bounded.
func (c *link) addBlock(p []byte, whole bool) error {
	if len(c.block)+len(p) > c.peer.HeaderBytes+FrameSize {
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
	c.fields.reset(c.peer.HeaderBytes)
	if _, err := c.decoder.Write(p); err != nil {
		return refuse(CompressionError, err.Error())
	}
	if err := c.decoder.Close(); err != nil {
		return refuse(CompressionError, err.Error())
	}
	err := c.side.headersCame()
	c.fields.release()
	return err
}

func (c *link) priority(f *frame, p []byte) error {
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

// streamFault resets a stream because of a fault of the peer.
func (c *link) streamFault(id uint32, code Code) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		c.reset(s, code)
	} else {
		c.side.sendReset(id, code)
	}
	return nil
}

// reset ends a stream, and tells the peer. It is called with mu held.
func (c *link) reset(s *flow, code Code) {
	if s.closed {
		return
	}
	s.self.end(errGone)
	c.side.sendReset(s.id, code)
}

func (c *link) streamReset(f *frame, p []byte) error {
	switch {
	case f.stream == 0:
		return refuse(ProtocolError, "RST_STREAM of a stream that was not opened")
	case len(p) != 4:
		return refuse(FrameSizeError, "RST_STREAM is malformed")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.side.rstStream(f, Code(binary.BigEndian.Uint32(p)))
}

func (c *link) settings(f *frame, p []byte) error {
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
		if err := c.takeSetting(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	c.side.settingsCame()
	c.control(16, func(dst []byte) []byte { return appendFrame(dst, frameSettings, flagAck, 0, 0) })
	return nil
}

// mostSettings is how many settings one frame may have. Each may cost a look at every stream; net/http's
// limit is the same.
const mostSettings = 100

// takeSetting takes one setting of the peer. It is called with mu held.
func (c *link) takeSetting(id uint16, value uint32) error {
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
		if value < FrameSize || value > 1<<24-1 {
			return refuse(ProtocolError, "a frame size that is not allowed")
		}
	}
	return c.side.setting(id, value)
}

func (c *link) ping(f *frame, p []byte) error {
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

func (c *link) windowUpdate(f *frame, p []byte) error {
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
		return c.side.closedStream(f)
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
