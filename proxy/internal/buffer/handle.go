package buffer

import (
	"bytes"
	"unsafe"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Handle owns a buffer, or none, as its zero value. Put gives the buffer back, and Take moves it to another Handle;
// the Handle has none then. The content of a buffer are its first bytes, of which there are Len.
//
// A Handle must not be copied, which go vet finds. It is not safe for concurrent use.
type Handle struct {
	_ noCopy
	watch
	b []byte // nil: no buffer
}

// noCopy makes go vet find copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Get returns a buffer of at least n bytes, all of which are its content. One larger than Large is not pooled.
func Get(n int) Handle { return Handle{b: get(n), watch: begin()} }

// GetEmpty is like Get for a buffer without content.
func GetEmpty(n int) Handle { return Handle{b: get(n)[:0], watch: begin()} }

// New returns a buffer of n bytes that is of no pool, for a wait that many share.
func New(n int) Handle { return Handle{b: make([]byte, n), watch: begin()} }

// Clone is like New for a buffer with the content p, and has none if p is nil.
func Clone(p []byte) Handle {
	if p == nil {
		return Handle{}
	}
	return Handle{b: bytes.Clone(p), watch: begin()}
}

// Owns reports whether there is a buffer.
func (h *Handle) Owns() bool { return h.b != nil }

// Bytes returns the content, nil without a buffer. It is valid until the buffer goes back. Appending to it as far as
// Cap allows writes into the buffer, of which Appended then must be told.
func (h *Handle) Bytes() []byte {
	h.use()
	return h.b
}

// Len returns how many bytes the content has.
func (h *Handle) Len() int { return len(h.b) }

// Cap returns the size of the buffer; 0 without one.
func (h *Handle) Cap() int { return cap(h.b) }

// Room returns how many bytes can be appended without moving the content.
func (h *Handle) Room() int { return cap(h.b) - len(h.b) }

// Free returns the end of the buffer that is no content. Whoever writes there calls Resize.
func (h *Handle) Free() []byte { return h.Bytes()[len(h.b):cap(h.b)] }

// Resize makes the first n bytes of the buffer its content.
func (h *Handle) Resize(n int) { h.b = h.b[:n] }

// Expand makes all of the buffer its content.
func (h *Handle) Expand() { h.b = h.b[:cap(h.b)] }

// Drop removes the first n bytes of the content.
func (h *Handle) Drop(n int) {
	b := h.Bytes()
	h.b = b[:copy(b, b[n:])]
}

// Append appends p to the content, in a larger buffer if that is necessary.
func (h *Handle) Append(p []byte) {
	if h.use(); len(p) > h.Room() {
		h.Grow(len(p))
	}
	h.b = append(h.b, p...)
}

// Appended makes b the content, to which somebody appended what was missing. If append had to move it, the buffer that
// it was in goes back.
func (h *Handle) Appended(b []byte) {
	h.use()
	if unsafe.SliceData(b) != unsafe.SliceData(h.b) {
		h.moveTo(b)
	}
	h.b = b
}

// moveTo gives the buffer back, since b has its content. It is not inlined, so that Appended is.
//
//go:noinline
func (h *Handle) moveTo(b []byte) {
	h.Put()
	h.b, h.watch = b, begin()
}

// Grow makes room for at least n more bytes. If the content has to move to a larger buffer, the old one goes back.
// Beyond Large the size doubles at least, so that many small pieces are not copied as many times.
func (h *Handle) Grow(n int) {
	h.use()
	if cap(h.b)-len(h.b) >= n {
		return
	}
	size := len(h.b) + n
	if size > Large {
		size = max(size, 2*cap(h.b))
	}
	h.Appended(append(get(size)[:0], h.b...))
}

// Wipe empties the buffer, of which nothing is used any more. It stays.
func (h *Handle) Wipe() {
	h.use()
	poison.Fill(h.b)
	h.b = h.b[:0]
}

// Take moves the buffer to the Handle that it returns.
func (h *Handle) Take() Handle {
	b := h.b
	h.b = nil
	return Handle{b: b, watch: h.move()}
}

// Put gives the buffer back, if there is one.
func (h *Handle) Put() {
	if h.b != nil { // mostly there is none: no call then
		h.giveBack()
	}
}

// giveBack is not inlined, so that Put is.
//
//go:noinline
func (h *Handle) giveBack() { put(h.consume()) }

// consume takes the buffer, which goes back, out of the Handle.
func (h *Handle) consume() []byte {
	h.end()
	b := h.b
	poison.Fill(b)
	h.b = nil
	return b
}
