package buffer

import (
	"unsafe"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Spans are what points into a buffer, such as parsed headers.
type Spans interface {
	// Detach clears all of it.
	Detach()
	// CheckDetached panics if something points into b still. It is called in builds that poison.
	CheckDetached(b []byte)
}

// Spanned owns a buffer into which an S points, or none. The buffer goes back only after the S has been detached, and
// builds that poison check then that nothing of it points there any more.
//
// Like a Handle, it must not be copied and is not safe for concurrent use.
type Spanned[S Spans] struct{ h Handle }

// Owns reports whether there is a buffer.
func (s *Spanned[S]) Owns() bool { return s.h.Owns() }

// Bytes returns the content, nil without a buffer.
func (s *Spanned[S]) Bytes() []byte { return s.h.Bytes() }

// Cap returns the size of the buffer; 0 without one.
func (s *Spanned[S]) Cap() int { return s.h.Cap() }

// Get gets a buffer of at least n bytes, of from's if that has one. There must be no other.
func (s *Spanned[S]) Get(from *Cache, n int) {
	h := from.Get(n)
	s.Hold(&h)
}

// Hold takes over the buffer of h. There must be no other, which builds that poison check.
func (s *Spanned[S]) Hold(h *Handle) {
	s.h.mustBeNone()
	s.h = h.Take()
}

// HoldAll is like Hold. All of the buffer becomes the content, whose length before it returns.
func (s *Spanned[S]) HoldAll(h *Handle) (n int) {
	n = h.Len()
	h.Expand()
	s.Hold(h)
	return n
}

// Take moves the buffer to the Handle that it returns, and with it the care for what points into it.
func (s *Spanned[S]) Take() Handle { return s.h.Take() }

// Put detaches the spans and gives the buffer, if there is one, to to.
func (s *Spanned[S]) Put(to *Cache, spans S) {
	spans.Detach()
	s.putDetached(to, spans)
}

// Replace gives the buffer back and takes over that of h, to which the spans were moved, if they were not cleared.
func (s *Spanned[S]) Replace(h *Handle, spans S) {
	s.putDetached(nil, spans)
	s.Hold(h)
}

func (s *Spanned[S]) putDetached(to *Cache, spans S) {
	used := s.h.Take()
	if poison.On && used.Owns() {
		spans.CheckDetached(used.Bytes())
	}
	to.Put(&used)
}

// Grow moves the first n bytes, which are all that is used, to a larger buffer with at least as much room. It detaches
// the spans, so that the bytes must be parsed anew.
func (s *Spanned[S]) Grow(n int, spans S) {
	spans.Detach()
	bigger := Get(s.h.Cap() + n)
	copy(bigger.Bytes(), s.h.Bytes()[:n])
	s.Replace(&bigger, spans)
}

// MustNotPointInto panics if span points into b. what names the span in the message.
func MustNotPointInto(b []byte, what string, span []byte) {
	at, from := uintptr(unsafe.Pointer(unsafe.SliceData(span))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(span) > 0 && from <= at && at < from+uintptr(cap(b)) {
		panic("a buffer went back while " + what + " points into it")
	}
}
