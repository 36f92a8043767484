package http2

import "encoding/binary"

// handle handles one frame. An error ends the connection.
func (l *link) handle(f *frame, p []byte) error {
	l.count(f)
	l.quiet = l.quiet && f.kind == framePing
	if l.block != nil && f.kind != frameContinuation {
		return refuse(ProtocolError, "a header block was interrupted")
	}
	if !l.settled && f.kind != frameSettings {
		return refuse(ProtocolError, "the first frame is not SETTINGS")
	}
	switch f.kind {
	case FrameData:
		return l.data(f, p)
	case FrameHeaders:
		return l.headers(f, p)
	case frameContinuation:
		return l.continuation(f, p)
	case framePriority:
		return l.priority(f, p)
	case FrameRSTStream:
		return l.streamReset(f, p)
	case frameSettings:
		return l.settings(f, p)
	case framePing:
		return l.ping(f, p)
	case frameGoAway:
		switch {
		case f.stream != 0:
			return refuse(ProtocolError, "GOAWAY of a stream")
		case len(p) < 8:
			return refuse(FrameSizeError, "GOAWAY is too short")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.side.goAway(p)
	case FrameWindowUpdate:
		return l.windowUpdate(f, p)
	case framePushPromise:
		return refuse(ProtocolError, "nobody may push")
	}
	return nil // extensions are ignored (RFC 9113 section 5.5)
}

// data takes a piece of a body. The window of the connection is credited at once, so that what is not read
// holds up its own stream alone.
func (l *link) data(f *frame, p []byte) error {
	if f.stream == 0 {
		return refuse(ProtocolError, "DATA without a stream")
	}
	body, err := f.unpad(p)
	if err != nil {
		return err
	}
	s, err := l.dataOf(f, body)
	if s != nil {
		s.count()
	}
	return err
}

// dataOf gives a piece of a body to its stream, and returns the stream if it took it.
func (l *link) dataOf(f *frame, body []byte) (*flow, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.creditConnection(f.length)
	s := l.streams[f.stream]
	switch {
	case s == nil:
		return nil, l.side.closedStream(f)
	case s.closed && l.side.ofClosed(s):
		return nil, l.side.closedStream(f)
	case s.closed:
		return nil, nil // we reset it, and the peer did not know yet
	case s.remoteEnded:
		l.reset(s, StreamClosed)
		return nil, nil
	case s.early:
		l.reset(s, ProtocolError)
		return nil, nil
	}
	s.receive(body, f.length, f.has(FlagEndStream))
	return s, nil
}

// creditConnection counts n bytes that the peer sent. It is called with mu held.
func (l *link) creditConnection(n int) {
	if l.received += n; l.received >= connectionWindow/4 {
		credit := l.received
		l.received = 0
		l.control(16, func(dst []byte) []byte { return appendWindowUpdate(dst, 0, credit) })
	}
}

func (l *link) headers(f *frame, p []byte) error {
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
	l.opening = *f
	return l.addBlock(block, f.has(flagEndHeaders))
}

func (l *link) continuation(f *frame, p []byte) error {
	if l.block == nil || f.stream != l.opening.stream {
		return refuse(ProtocolError, "CONTINUATION without HEADERS")
	}
	return l.addBlock(p, f.has(flagEndHeaders))
}

// addBlock adds a piece of a header block, and handles it when it is whole. Blocks are kept as they came,
// since only a whole one can be decoded; what they may grow to is bounded.
func (l *link) addBlock(p []byte, whole bool) error {
	if len(l.block)+len(p) > l.peer.HeaderBytes+FrameSize {
		return refuse(EnhanceYourCalm, "a header block larger than headers may be")
	}
	if !whole {
		l.block = append(l.block, p...)
		if l.block == nil {
			l.block = []byte{}
		}
		return nil
	}
	if l.block != nil {
		p = append(l.block, p...)
		l.block = nil
	}
	l.fields.reset(l.peer.HeaderBytes)
	if _, err := l.decoder.Write(p); err != nil {
		return refuse(CompressionError, err.Error())
	}
	if err := l.decoder.Close(); err != nil {
		return refuse(CompressionError, err.Error())
	}
	err := l.side.headersCame()
	l.fields.release()
	return err
}

func (l *link) priority(f *frame, p []byte) error {
	if f.stream == 0 {
		return refuse(ProtocolError, "PRIORITY without a stream")
	}
	if len(p) != 5 {
		return l.streamFault(f.stream, FrameSizeError)
	}
	if binary.BigEndian.Uint32(p)&maxStreamID == f.stream {
		return l.streamFault(f.stream, ProtocolError)
	}
	return nil // priorities are ignored (RFC 9113 section 5.3.2)
}

// streamFault resets a stream because of a fault of the peer.
func (l *link) streamFault(id uint32, code Code) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.streams[id]; s != nil {
		l.reset(s, code)
	} else {
		l.side.sendReset(id, code)
	}
	return nil
}

// reset ends a stream, and tells the peer. It is called with mu held.
func (l *link) reset(s *flow, code Code) {
	if s.closed {
		return
	}
	s.self.end(errGone)
	l.side.sendReset(s.id, code)
}

func (l *link) streamReset(f *frame, p []byte) error {
	switch {
	case f.stream == 0:
		return refuse(ProtocolError, "RST_STREAM of a stream that was not opened")
	case len(p) != 4:
		return refuse(FrameSizeError, "RST_STREAM is malformed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.side.rstStream(f, Code(binary.BigEndian.Uint32(p)))
}

func (l *link) settings(f *frame, p []byte) error {
	switch {
	case f.stream != 0:
		return refuse(ProtocolError, "SETTINGS of a stream")
	case f.has(flagAck) && len(p) > 0, len(p)%6 != 0:
		return refuse(FrameSizeError, "SETTINGS are malformed")
	case len(p) > 6*mostSettings:
		return refuse(EnhanceYourCalm, "more SETTINGS at once than there are")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.has(flagAck) {
		return nil
	}
	l.settled = true
	for ; len(p) > 0; p = p[6:] {
		if err := l.takeSetting(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	l.side.settingsCame()
	l.control(16, func(dst []byte) []byte { return appendFrame(dst, frameSettings, flagAck, 0, 0) })
	return nil
}

// mostSettings is how many settings one frame may have. Each may cost a look at every stream; net/http's
// limit is the same.
const mostSettings = 100

// takeSetting takes one setting of the peer. It is called with mu held.
func (l *link) takeSetting(id uint16, value uint32) error {
	switch id {
	case settingHeaderTableSize:
		l.tableShrinks = l.tableShrinks || value < defaultHeaderTable
	case settingEnablePush, settingEnableConnect:
		if value > 1 {
			return refuse(ProtocolError, "a setting is neither 0 nor 1")
		}
	case settingInitialWindowSize:
		if value > maxWindow {
			return refuse(FlowControlError, "a window larger than allowed")
		}
		more := int64(value) - l.streamWindow
		l.streamWindow = int64(value)
		for _, s := range l.streams {
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
	return l.side.setting(id, value)
}

func (l *link) ping(f *frame, p []byte) error {
	switch {
	case f.stream != 0:
		return refuse(ProtocolError, "PING of a stream")
	case len(p) != 8:
		return refuse(FrameSizeError, "PING is malformed")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.has(flagAck) {
		l.pinged = false
		return nil
	}
	l.control(32, func(dst []byte) []byte { return append(appendFrame(dst, framePing, flagAck, 0, 8), p...) })
	return nil
}

func (l *link) windowUpdate(f *frame, p []byte) error {
	if len(p) != 4 {
		return refuse(FrameSizeError, "WINDOW_UPDATE is malformed")
	}
	n := int64(binary.BigEndian.Uint32(p) & maxWindow)
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.stream == 0 {
		if n == 0 {
			return refuse(ProtocolError, "WINDOW_UPDATE of 0")
		}
		if l.window += n; l.window > maxWindow {
			return refuse(FlowControlError, "the window of the connection grew larger than allowed")
		}
		l.wakeBlocked()
		return nil
	}
	s := l.streams[f.stream]
	switch {
	case s == nil:
		return l.side.closedStream(f)
	case n == 0:
		l.reset(s, ProtocolError)
	default:
		if s.window += n; s.window > maxWindow {
			l.reset(s, FlowControlError)
			return nil
		}
		s.wake()
	}
	return nil
}
