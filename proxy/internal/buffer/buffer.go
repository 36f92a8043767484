// Package buffer provides pools of buffers for connections. In builds with the tag poison,
// and with -race, a returned buffer is overwritten, to expose spans that still point into
// it.
package buffer

import (
	"sync"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Sizes of pooled buffers, in bytes. Headers with a small response fit in Small (measured headers of
// browsers and services stay below 2 KiB), a usual JSON response in Medium, a request with a body
// of 16 KiB in Wide. Large moves bodies.
const (
	Small  = 4 << 10
	Medium = 16 << 10
	Wide   = 32 << 10
	Large  = 64 << 10
)

// The pools hold array pointers, so that putting a slice back allocates nothing.
var (
	smallPool  = sync.Pool{New: func() any { return new([Small]byte) }}
	mediumPool = sync.Pool{New: func() any { return new([Medium]byte) }}
	widePool   = sync.Pool{New: func() any { return new([Wide]byte) }}
	largePool  = sync.Pool{New: func() any { return new([Large]byte) }}
)

// Get returns a buffer of at least n bytes at its full length. The caller owns it until Put. A
// buffer larger than Large is not pooled.
func Get(n int) []byte {
	switch {
	case n <= Small:
		return smallPool.Get().(*[Small]byte)[:]
	case n <= Medium:
		return mediumPool.Get().(*[Medium]byte)[:]
	case n <= Wide:
		return widePool.Get().(*[Wide]byte)[:]
	case n <= Large:
		return largePool.Get().(*[Large]byte)[:]
	}
	return make([]byte, n)
}

// Put takes back a buffer from Get. It ignores nil and leaves other sizes to the garbage collector.
// b must start where Get's slice started.
func Put(b []byte) {
	if b != nil { // mostly it is nil: no call then
		put(b)
	}
}

func put(b []byte) {
	poison.Fill(b)
	switch cap(b) {
	case Small:
		smallPool.Put((*[Small]byte)(b[:Small]))
	case Medium:
		mediumPool.Put((*[Medium]byte)(b[:Medium]))
	case Wide:
		widePool.Put((*[Wide]byte)(b[:Wide]))
	case Large:
		largePool.Put((*[Large]byte)(b[:Large]))
	}
}

// Grow returns b with room for at least n more bytes. If it has to move to a larger buffer, the
// old one is put back. Beyond Large the size doubles at least, so that many small pieces are not
// copied as many times.
func Grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	size := len(b) + n
	if size > Large {
		size = max(size, 2*cap(b))
	}
	bigger := Get(size)[:0]
	bigger = append(bigger, b...)
	Put(b)
	return bigger
}

// Cache holds buffers that a busy connection keeps between requests: getting and returning three
// of them costs more than parsing the headers. Call Release before a wait for a client's next
// request, or if many requests wait for a retry. It is not safe for concurrent use.
type Cache struct {
	small  [2]*[Small]byte // for the headers of request and response; nil ones last
	medium *[Medium]byte
}

// Get is like the function Get, but takes a buffer of the size from the cache if there is one.
func (s *Cache) Get(n int) []byte {
	switch {
	case n <= Small && s.small[0] != nil:
		b := s.small[0]
		s.small[0], s.small[1] = s.small[1], nil
		return b[:]
	case n > Small && n <= Medium && s.medium != nil:
		b := s.medium
		s.medium = nil
		return b[:]
	}
	return Get(n)
}

// Put is like the function Put, for a buffer that is likely to be used again soon.
func (s *Cache) Put(b []byte) {
	poison.Fill(b)
	switch {
	case cap(b) == Small && s.small[1] == nil:
		s.small[0], s.small[1] = (*[Small]byte)(b[:Small]), s.small[0]
	case cap(b) == Medium && s.medium == nil:
		s.medium = (*[Medium]byte)(b[:Medium])
	default:
		Put(b)
	}
}

// Release puts all buffers back into their pools.
func (s *Cache) Release() {
	for i, b := range s.small {
		if b != nil {
			put(b[:])
			s.small[i] = nil
		}
	}
	if s.medium != nil {
		put(s.medium[:])
		s.medium = nil
	}
}
