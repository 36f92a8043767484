package buffer

import "github.com/retryproxy/retryproxy/proxy/internal/poison"

// Cache holds buffers that a busy connection keeps from one request to the next: getting and
// returning three of them costs more than parsing the headers. Release it before a wait for a
// client's next request, or if many requests wait for a retry. Not safe for concurrent use.
type Cache struct {
	small  [2]*[Small]byte // both heads that are written; nil ones last
	medium *[Medium]byte
}

// Get is the function Get, from the cache if that has a buffer of the size.
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

// Put is the function Put, for a buffer that is likely to be used again soon.
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
