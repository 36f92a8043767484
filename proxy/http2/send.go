package http2

import (
	"net"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// writeData writes a piece of the response's body, and ends the response if ends is true.
func (s *flow) writeData(p []byte, ends bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 || ends {
		if err := s.writeErr(); err != nil {
			return err
		}
		if n := int(min(int64(len(p)), s.window, c.window, mostDirect)); n >= directFrom && c.writev != nil && !c.out.writing && c.out.waits() <= directFrom {
			s.writeDirect(p[:n], ends && n == len(p))
			if p = p[n:]; len(p) == 0 {
				return nil
			}
			continue
		}
		n := int(max(0, min(int64(len(p)), s.window, c.window, FrameSize, int64(roomForData-frameHeader-c.out.waits())))) // SETTINGS may make a window negative
		if n == 0 && len(p) > 0 {
			if err := s.waitToWrite(s.canWrite, true); err != nil {
				return err
			}
			continue
		}
		last := ends && n == len(p)
		var flags byte
		if last {
			flags = FlagEndStream
		}
		dst := appendFrame(c.room(frameHeader+n), FrameData, flags, s.id, n)
		c.out.pending.Appended(append(dst, p[:n]...))
		s.spend(n)
		p = p[n:]
		if last {
			s.wroteAll()
			return nil
		}
	}
	return nil
}

// spend counts n bytes of a body that are written. It is called with mu held.
func (s *flow) spend(n int) {
	c := s.c
	s.move(n)
	s.window -= int64(n)
	if c.window -= int64(n); c.window <= 0 {
		c.usedUpAt = time.Now()
	}
	c.earned += 1 + n/FrameSize
}

func (s *flow) writeErr() error {
	switch {
	case s.c.err != nil, s.c.unwritable != nil:
		return errGone
	case s.closed && s.err != nil:
		return s.err
	case s.closed, s.complete:
		return net.ErrClosed
	}
	return nil
}

// waitToWrite waits until can reports true, for room or for windows, until the write deadline. It is called with mu
// held, and lets what waits be written.
func (s *flow) waitToWrite(can func() bool, windows bool) error {
	if expired(s.writeBy) {
		return s.writeTimeUp()
	}
	s.c.mu.Unlock()
	s.c.flush()
	s.c.mu.Lock()
	if s.closed || s.c.err != nil || s.c.unwritable != nil || can() {
		return nil
	}
	// After the flush, which wakes all that are blocked. A stream without a window of its own is not one of them: a
	// thousand of those would be woken by every write of another stream, in vain.
	if !s.blocked && !(windows && s.window <= 0) {
		s.blocked = true
		s.c.out.blocked = append(s.c.out.blocked, s)
	}
	s.wait(s.writeBy)
	if expired(s.writeBy) && !can() && !s.closed {
		return s.writeTimeUp()
	}
	return nil
}

// writeTimeUp ends a response that its client does not read. What an upstream responds to a request that it
// does not read can still be read.
func (s *flow) writeTimeUp() error {
	if !s.c.isUpstream {
		s.c.reset(s, Cancel)
	}
	return os.ErrDeadlineExceeded
}

func (s *flow) canWrite() bool { return s.window > 0 && s.c.window > 0 && s.hasRoom() }

func (s *flow) hasRoom() bool { return s.c.out.waits() < roomForData-frameHeader }

// writeSection writes a header section, which appendTo makes, and ends our message if ends is true.
func (s *flow) writeSection(appendTo func([]byte) []byte, ends bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := s.writeErr(); err != nil {
			return err
		}
		if s.hasRoom() {
			break
		}
		if err := s.waitToWrite(s.hasRoom, false); err != nil {
			return err
		}
	}
	c.appendHeaders(s.id, c.encode(appendTo), ends)
	if ends {
		s.wroteAll()
	}
	return nil
}

// writeTrailers ends our message with trailers, of which there may be none.
func (s *flow) writeTrailers(trailers []http1.Header) error {
	if len(trailers) == 0 {
		return s.writeData(nil, true)
	}
	return s.writeSection(func(dst []byte) []byte {
		return wire.AppendLines(wire.Block, dst, trailers)
	}, true)
}

// wroteAll notes that our message was written whole. It is called with mu held.
func (s *flow) wroteAll() {
	s.complete = true
	s.self.completed()
}

// appendHeaders appends the frames of a header block. It is called with mu held.
func (c *link) appendHeaders(id uint32, block []byte, ends bool) {
	dst := c.room(len(block) + frameHeader*(1+len(block)/FrameSize))
	kind := byte(FrameHeaders)
	var flags byte
	if ends {
		flags = FlagEndStream
	}
	for {
		n := min(len(block), FrameSize)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		dst = append(appendFrame(dst, kind, flags, id, n), block[:n]...)
		if block = block[n:]; len(block) == 0 {
			break
		}
		kind, flags = frameContinuation, 0
	}
	c.out.pending.Appended(dst)
}
