package bridge

import (
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
	pool "github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// bufferLimit is how many bytes wait between the two sides of a stream before its writer blocks, at
// most: as many as the loop reads at once.
const bufferLimit = 64 << 10

// buffer is a bounded queue of bytes between goroutines, with the deadlines of a net.Conn. Call
// init before use; do not copy it.
type buffer struct {
	limit int // bytes that wait before the writer blocks

	mu      sync.Mutex // guards all fields below
	cond    sync.Cond
	data    []byte
	r       int   // data[:r] was read
	end     error // after the last byte
	waiting int   // goroutines in wait

	readBy, writeBy    time.Time // zero: no deadline
	readTime, writTime *time.Timer
}

func (b *buffer) init(limit int) { b.cond.L, b.limit = &b.mu, limit }

// Read returns the bytes that are there, and waits for the first one. As with a socket, an expired
// deadline takes precedence over everything.
func (b *buffer) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		switch {
		case expired(b.readBy):
			return 0, os.ErrDeadlineExceeded
		case b.r < len(b.data):
			n := copy(p, b.data[b.r:])
			if b.r += n; b.r == len(b.data) {
				b.data, b.r = b.data[:0], 0
			}
			b.wake()
			return n, nil
		case b.end != nil:
			return 0, b.end
		}
		b.wait(b.readBy, &b.readTime)
	}
}

// Write waits for room as needed. It returns how many bytes of p were accepted.
func (b *buffer) Write(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		k, err := b.accept(p[n:])
		if n += k; err != nil || n == len(p) {
			return n, err
		}
		b.wait(b.writeBy, &b.writTime)
	}
}

// accept takes as many bytes as there is room for. It is called with mu held.
func (b *buffer) accept(p []byte) (int, error) {
	if b.end != nil {
		return 0, b.end
	}
	if expired(b.writeBy) {
		return 0, os.ErrDeadlineExceeded
	}
	n := min(len(p), max(b.limit-(len(b.data)-b.r), 0))
	if n > 0 {
		b.append(p[:n])
		b.wake()
	}
	return n, nil
}

// writeNow takes as many bytes as there is room for.
func (b *buffer) writeNow(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accept(p)
}

// tryWrite accepts p without waiting. It reports false and accepts nothing if there is no room.
func (b *buffer) tryWrite(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.end != nil:
		return true // there is no reader
	case len(b.data)-b.r+len(p) > b.limit:
		return false
	}
	b.append(p)
	b.wake()
	return true
}

// append adds bytes. It moves the unread ones to the front if that avoids growing.
func (b *buffer) append(p []byte) {
	if b.r > 0 && len(b.data)+len(p) > cap(b.data) {
		b.data = b.data[:copy(b.data, b.data[b.r:])]
		b.r = 0
	}
	b.data = append(b.data, p...)
}

// close ends the buffer with err. Readers get it after the last byte, writers at once. Only the
// first call has an effect.
func (b *buffer) close(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.end == nil {
		b.end = err
	}
	b.wake()
}

// discard closes the buffer and drops the unread bytes.
func (b *buffer) discard(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(err)
}

// discardFull is like discard, but does nothing and reports false if there is room: the reader has
// taken something since the writer waits.
func (b *buffer) discardFull(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.data)-b.r < b.limit {
		return false
	}
	b.drop(err)
	return true
}

// drop is discard. It is called with mu held.
func (b *buffer) drop(err error) {
	if b.end == nil {
		b.end = err
	}
	b.data, b.r = nil, 0
	b.wake()
}

func (b *buffer) setReadDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readBy = t
	b.wake()
}

func (b *buffer) setWriteDeadline(t time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writeBy = t
	b.wake()
}

// wake wakes the waiting goroutines, if there are any. It is called with mu held.
func (b *buffer) wake() {
	if b.waiting > 0 {
		b.cond.Broadcast()
	}
}

// wait releases mu until another goroutine calls wake, or until by.
func (b *buffer) wait(by time.Time, timer **time.Timer) {
	if !by.IsZero() {
		d := max(time.Until(by), 0)
		if *timer == nil {
			*timer = time.AfterFunc(d, b.timeUp)
		} else {
			(*timer).Reset(d)
		}
		defer (*timer).Stop()
	}
	b.waiting++
	b.cond.Wait()
	b.waiting--
}

func (b *buffer) timeUp() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.wake()
}

func expired(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// chunkRoom is the room, in bytes, for the size line before a chunk.
const chunkRoom = 16

// fill writes a body into b in the framing f, each piece as it arrives. It returns io.EOF after
// all of it, with the trailers that came at the end of the body; otherwise it returns the error
// that ended the body. ahead is what the sender of the body may send ahead.
func (b *buffer) fill(body io.Reader, f http1.Framing, trailers func() http.Header, ahead ReadAhead) error {
	buf := pool.Get(min(b.limit, pool.Wide))
	defer pool.Put(buf)
	chunked := f.Kind == http1.BodyChunked
	for {
		n, err := body.Read(buf[chunkRoom : len(buf)-len("\r\n")])
		piece := buf[chunkRoom : chunkRoom+n]
		if chunked && n > 0 {
			piece = frame(buf, n)
		}
		if len(piece) > 0 {
			if err := ahead.write(b, piece); err != nil {
				return err
			}
		}
		if err == io.EOF && chunked {
			if _, err := b.Write(http1.AppendLastChunk(nil, trailerHeaders(trailers()))); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// frame writes the size line before the n bytes at buf[chunkRoom], and CRLF after them.
func frame(buf []byte, n int) []byte {
	var line [chunkRoom]byte
	size := http1.AppendChunkSize(line[:0], int64(n))
	start := chunkRoom - len(size)
	copy(buf[start:], size)
	end := chunkRoom + n
	copy(buf[end:], "\r\n")
	return buf[start : end+2]
}
