package http2

import (
	"net"
	"os"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// writeData writes a piece of the response's body, and ends the response if ends is true.
func (f *flow) writeData(p []byte, ends bool) error {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 || ends {
		if err := f.writeErr(); err != nil {
			return err
		}
		if n := int(min(int64(len(p)), f.window, c.window, mostDirect)); n >= directFrom && c.writev != nil && !c.out.writing && c.out.waits() <= directFrom {
			f.writeDirect(p[:n], ends && n == len(p))
			if p = p[n:]; len(p) == 0 {
				return nil
			}
			continue
		}
		n := int(max(0, min(int64(len(p)), f.window, c.window, FrameSize, int64(roomForData-frameHeader-c.out.waits())))) // SETTINGS may make a window negative
		if n == 0 && len(p) > 0 {
			if err := f.waitToWrite(f.canWrite, true); err != nil {
				return err
			}
			continue
		}
		last := ends && n == len(p)
		var flags byte
		if last {
			flags = FlagEndStream
		}
		dst := appendFrame(c.room(frameHeader+n), FrameData, flags, f.id, n)
		c.out.pending.Appended(append(dst, p[:n]...))
		f.spend(n)
		p = p[n:]
		if last {
			f.wroteAll()
			return nil
		}
	}
	return nil
}

// spend counts n bytes of a body that are written. It is called with mu held.
func (f *flow) spend(n int) {
	c := f.c
	f.move(n)
	f.window -= int64(n)
	if c.window -= int64(n); c.window <= 0 {
		c.usedUpAt = time.Now()
	}
	c.earned += 1 + n/FrameSize
}

func (f *flow) writeErr() error {
	switch {
	case f.c.err != nil, f.c.unwritable != nil:
		return errGone
	case f.closed && f.err != nil:
		return f.err
	case f.closed, f.complete:
		return net.ErrClosed
	}
	return nil
}

// waitToWrite waits until can reports true, for room or for windows, until the write deadline. It is called with mu
// held, and lets what waits be written.
func (f *flow) waitToWrite(can func() bool, windows bool) error {
	if expired(f.writeBy) {
		return f.writeTimeUp()
	}
	f.c.mu.Unlock()
	f.c.flush()
	f.c.mu.Lock()
	if f.closed || f.c.err != nil || f.c.unwritable != nil || can() {
		return nil
	}
	// After the flush, which wakes all that are blocked. A stream without a window of its own is not one of them: a
	// thousand of those would be woken by every write of another stream, in vain.
	if !f.blocked && !(windows && f.window <= 0) {
		f.blocked = true
		f.c.out.blocked = append(f.c.out.blocked, f)
	}
	f.wait(f.writeBy)
	if expired(f.writeBy) && !can() && !f.closed {
		return f.writeTimeUp()
	}
	return nil
}

// writeTimeUp ends a response that its client does not read. What an upstream responds to a request that it
// does not read can still be read.
func (f *flow) writeTimeUp() error {
	if !f.c.isUpstream {
		f.c.reset(f, Cancel)
	}
	return os.ErrDeadlineExceeded
}

func (f *flow) canWrite() bool { return f.window > 0 && f.c.window > 0 && f.hasRoom() }

func (f *flow) hasRoom() bool { return f.c.out.waits() < roomForData-frameHeader }

// writeSection writes a header section, which appendTo makes, and ends our message if ends is true.
func (f *flow) writeSection(appendTo func([]byte) []byte, ends bool) error {
	c := f.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if err := f.writeErr(); err != nil {
			return err
		}
		if f.hasRoom() {
			break
		}
		if err := f.waitToWrite(f.hasRoom, false); err != nil {
			return err
		}
	}
	c.appendHeaders(f.id, c.encode(appendTo), ends)
	if ends {
		f.wroteAll()
	}
	return nil
}

// writeTrailers ends our message with trailers, of which there may be none.
func (f *flow) writeTrailers(trailers []http1.Header) error {
	if len(trailers) == 0 {
		return f.writeData(nil, true)
	}
	return f.writeSection(func(dst []byte) []byte {
		return wire.AppendLines(wire.Block, dst, trailers)
	}, true)
}

// wroteAll notes that our message was written whole. It is called with mu held.
func (f *flow) wroteAll() {
	f.complete = true
	f.self.completed()
}

// appendHeaders appends the frames of a header block. It is called with mu held.
func (l *link) appendHeaders(id uint32, block []byte, ends bool) {
	dst := l.room(len(block) + frameHeader*(1+len(block)/FrameSize))
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
	l.out.pending.Appended(dst)
}
