package proxy

import (
	"sync"

	"github.com/retryproxy/retryproxy/proxy/internal/poison"
)

// Buffer sizes. A head and a small response fit in the small one (measured
// heads of browsers and services stay below 2 KiB), a usual JSON answer in
// the medium one, a request with a body of 16 KiB in the wide one; the large one
// moves bodies.
const (
	smallBuffer  = 4 << 10
	mediumBuffer = 16 << 10
	wideBuffer   = 32 << 10
	largeBuffer  = 64 << 10
)

// The pools hold array pointers, so that putting a slice back allocates nothing.
var (
	smallBuffers  = sync.Pool{New: func() any { return new([smallBuffer]byte) }}
	mediumBuffers = sync.Pool{New: func() any { return new([mediumBuffer]byte) }}
	wideBuffers   = sync.Pool{New: func() any { return new([wideBuffer]byte) }}
	largeBuffers  = sync.Pool{New: func() any { return new([largeBuffer]byte) }}
)

// getBuffer gives a buffer of at least n bytes at its full length. The client
// owns it until putBuffer; one larger than largeBuffer is not pooled.
func getBuffer(n int) []byte {
	switch {
	case n <= smallBuffer:
		return smallBuffers.Get().(*[smallBuffer]byte)[:]
	case n <= mediumBuffer:
		return mediumBuffers.Get().(*[mediumBuffer]byte)[:]
	case n <= wideBuffer:
		return wideBuffers.Get().(*[wideBuffer]byte)[:]
	case n <= largeBuffer:
		return largeBuffers.Get().(*[largeBuffer]byte)[:]
	}
	return make([]byte, n)
}

// putBuffer takes back a buffer of getBuffer; nil and foreign sizes are left
// to the collector. b must start where getBuffer's slice started.
func putBuffer(b []byte) {
	if b != nil { // mostly there is none, which is found out without a call
		pool(b)
	}
}

func pool(b []byte) {
	poison.Fill(b)
	switch cap(b) {
	case smallBuffer:
		smallBuffers.Put((*[smallBuffer]byte)(b[:smallBuffer]))
	case mediumBuffer:
		mediumBuffers.Put((*[mediumBuffer]byte)(b[:mediumBuffer]))
	case wideBuffer:
		wideBuffers.Put((*[wideBuffer]byte)(b[:wideBuffer]))
	case largeBuffer:
		largeBuffers.Put((*[largeBuffer]byte)(b[:largeBuffer]))
	}
}

// grow returns b with room for at least n more bytes, moved to a larger
// buffer where needed; the old one is given back.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	bigger := getBuffer(len(b) + n)[:0]
	bigger = append(bigger, b...)
	putBuffer(b)
	return bigger
}
