package proxy

// spare holds buffers that a busy connection keeps from one request to the
// next: to fetch and return three of them costs more than to parse both heads.
// Whoever waits for a caller's next request, or is one of many that wait for a
// retry, releases them. Not safe for concurrent use.
type spare struct {
	small  *[smallBuffer]byte
	medium *[mediumBuffer]byte
}

// get is getBuffer, from what is kept where that fits.
func (s *spare) get(n int) []byte {
	switch {
	case n <= smallBuffer && s.small != nil:
		b := s.small
		s.small = nil
		return b[:]
	case n > smallBuffer && n <= mediumBuffer && s.medium != nil:
		b := s.medium
		s.medium = nil
		return b[:]
	}
	return getBuffer(n)
}

// put is putBuffer, for a buffer that is likely to be wanted soon.
func (s *spare) put(b []byte) {
	switch {
	case cap(b) == smallBuffer && s.small == nil:
		s.small = (*[smallBuffer]byte)(b[:smallBuffer])
	case cap(b) == mediumBuffer && s.medium == nil:
		s.medium = (*[mediumBuffer]byte)(b[:mediumBuffer])
	default:
		putBuffer(b)
	}
}

func (s *spare) release() {
	if s.small != nil {
		smallBuffers.Put(s.small)
		s.small = nil
	}
	if s.medium != nil {
		mediumBuffers.Put(s.medium)
		s.medium = nil
	}
}
