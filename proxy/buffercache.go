package proxy

import "github.com/retryproxy/retryproxy/proxy/internal/poison"

// bufferCache holds buffers that a busy connection keeps from one request to the
// next: to fetch and return three of them costs more than to parse both heads.
// Whoever waits for a client's next request, or is one of many that wait for a
// retry, releases them. Not safe for concurrent use.
type bufferCache struct {
	small  [2]*[smallBuffer]byte // both heads that are written; nil ones last
	medium *[mediumBuffer]byte
}

// get is getBuffer, from what is kept where that fits.
func (s *bufferCache) get(n int) []byte {
	switch {
	case n <= smallBuffer && s.small[0] != nil:
		b := s.small[0]
		s.small[0], s.small[1] = s.small[1], nil
		return b[:]
	case n > smallBuffer && n <= mediumBuffer && s.medium != nil:
		b := s.medium
		s.medium = nil
		return b[:]
	}
	return getBuffer(n)
}

// put is putBuffer, for a buffer that is likely to be wanted soon.
func (s *bufferCache) put(b []byte) {
	poison.Fill(b)
	switch {
	case cap(b) == smallBuffer && s.small[1] == nil:
		s.small[0], s.small[1] = (*[smallBuffer]byte)(b[:smallBuffer]), s.small[0]
	case cap(b) == mediumBuffer && s.medium == nil:
		s.medium = (*[mediumBuffer]byte)(b[:mediumBuffer])
	default:
		putBuffer(b)
	}
}

func (s *bufferCache) release() {
	for i, b := range s.small {
		if b != nil {
			pool(b[:])
			s.small[i] = nil
		}
	}
	if s.medium != nil {
		pool(s.medium[:])
		s.medium = nil
	}
}
