// Package buffer provides pools of buffers for connections. Get takes one, and a [Handle] owns it until Put gives it
// back. A [Spanned] owns one into which spans point, such as those of parsed headers, and a [Cache] keeps some that are
// likely to be used again soon.
//
// In builds with the tag poison, and with -race, a buffer that goes back is overwritten, to expose spans that still
// point into it. A buffer that goes back twice, is used afterwards or never goes back makes such a build panic.
package buffer

import "sync"

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

// get returns a buffer of at least n bytes at its full length. One larger than Large is of no pool.
func get(n int) []byte {
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

// put takes back a buffer. It leaves sizes of no pool to the garbage collector.
func put(b []byte) {
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
