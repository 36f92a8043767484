package buffer

// Cache holds buffers that a busy connection keeps between requests: getting and returning three
// of them costs more than parsing the headers. Call Release before a wait for a client's next
// request, or if many requests wait for a retry. A nil Cache holds none. It is not safe for concurrent use.
type Cache struct {
	_ noCopy
	watch
	small  [2]*[Small]byte // for the headers of request and response; nil ones last
	medium *[Medium]byte
}

// Get is like the function Get, but takes a buffer of the size from the cache if there is one.
func (s *Cache) Get(n int) Handle {
	switch {
	case s == nil:
	case n <= Small && s.small[0] != nil:
		b := s.small[0]
		s.small[0], s.small[1] = s.small[1], nil
		s.keeps(s.small[0] != nil || s.medium != nil)
		return Handle{b: b[:], watch: begin()}
	case n > Small && n <= Medium && s.medium != nil:
		b := s.medium
		s.medium = nil
		s.keeps(s.small[0] != nil)
		return Handle{b: b[:], watch: begin()}
	}
	return Get(n)
}

// Put is like Handle.Put, for a buffer that is likely to be used again soon.
func (s *Cache) Put(h *Handle) {
	if h.b == nil {
		return
	}
	b := h.consume()
	switch {
	case s == nil:
		put(b)
	case cap(b) == Small && s.small[1] == nil:
		s.small[0], s.small[1] = (*[Small]byte)(b[:Small]), s.small[0]
		s.keeps(true)
	case cap(b) == Medium && s.medium == nil:
		s.medium = (*[Medium]byte)(b[:Medium])
		s.keeps(true)
	default:
		put(b)
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
	s.keeps(false)
}
