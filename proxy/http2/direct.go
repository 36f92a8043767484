package http2

import (
	"sync"

	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// A piece of a body of at least directFrom bytes is written from where it is, up to mostDirect of it at once, if
// no other goroutine writes. Copied to what waits, GETs of 1 MiB cost 1.3 times the CPU. If more than directFrom
// waits already, it is copied: a client that reads slowly has the write timeout for what is written at once.
const (
	directFrom = 8 << 10
	mostDirect = 64 << 10
)

// directWrite has the parts of one write: what waits, and a piece of a body in frames.
type directWrite struct {
	parts   [1 + 2*mostDirect/FrameSize][]byte
	headers [mostDirect / FrameSize * frameHeader]byte
}

var directWrites = sync.Pool{New: func() any { return new(directWrite) }}

// gather returns the parts, and how many bytes are in the frames.
func (d *directWrite) gather(waits []byte, id uint32, p []byte, ends bool) (parts [][]byte, framed int) {
	parts, headers := append(d.parts[:0], waits), d.headers[:0]
	framed = len(p)
	for len(p) > 0 {
		n := min(len(p), FrameSize)
		var flags byte
		if ends && n == len(p) {
			flags = FlagEndStream
		}
		at := len(headers)
		headers = appendFrame(headers, FrameData, flags, id, n)
		parts = append(parts, headers[at:], p[:n])
		p = p[n:]
	}
	return parts, framed + len(headers)
}

// writeDirect writes p, for which the windows have room, behind what waits. It is called with mu held, while
// nobody writes.
func (f *flow) writeDirect(p []byte, ends bool) {
	c := f.c
	f.spend(len(p))
	if ends {
		f.wroteAll()
	}
	c.out.writing = true
	c.nextOut()
	d := directWrites.Get().(*directWrite)
	parts, framed := d.gather(c.out.current.Bytes(), f.id, p, ends)
	c.out.beside = framed
	c.mu.Unlock()
	n, err := c.writev(parts)
	c.mu.Lock()
	c.out.beside = 0
	switch left := c.out.current.Len() + framed - n; {
	case err != nil:
		c.writeFailed(err)
		c.endWriting()
	case left > 0: // an upstream has no room for more now
		rest := buffer.GetEmpty(left)
		for _, part := range parts {
			rest.Append(part)
		}
		c.out.wrote()
		c.out.before += int64(framed - left)
		c.out.current, c.out.sent = rest.Take(), 0
		go c.writeAll()
	default:
		c.out.wrote()
		c.out.before += int64(framed)
		c.wakeBlocked()
		c.endWriting()
	}
	clear(d.parts[:])
	directWrites.Put(d)
}
