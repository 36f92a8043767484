package http2

import (
	"net"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// WriteHeaders sends the headers of the request, a wire.Block. If ends is set, it has no body. They are sent with what is
// written next, or by Flush. If the connection has ended, reading returns ErrUnprocessed.
func (s *UpstreamStream) WriteHeaders(q *wire.Head, ends bool) error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case s.closed && s.err == ErrUnprocessed:
		return nil
	case s.closed, s.begun:
		return net.ErrClosed
	case c.err != nil, c.unwritable != nil, c.goneAway, c.next > maxStreamID, c.out.waits() > mostUnwritten:
		c.wentAway()
		s.end(ErrUnprocessed)
		return nil
	}
	s.id, s.window, s.begun = c.next, c.streamWindow, true
	c.next += 2
	c.streams[s.id] = &s.flow
	s.noBody = string(q.Method) == "HEAD"
	s.at = c.out.at()
	c.appendHeaders(s.id, c.encode(func(dst []byte) []byte {
		return append(wire.AppendRequestLine(dst, q.Method, q.Target, q.Authority, c.o.Secure), q.Fields...)
	}), ends)
	if c.err == nil && ends {
		s.wroteAll()
	}
	return nil
}

// WriteBody sends parts of the body, which ends with them if ends is true. It returns how many bytes were
// taken. An error means that the upstream takes no more of it.
func (s *UpstreamStream) WriteBody(parts [][]byte, ends bool) (n int, err error) {
	for i, p := range parts {
		if err = s.writeData(p, ends && i == len(parts)-1); err != nil {
			break
		}
		n += len(p)
	}
	if len(parts) == 0 && ends {
		err = s.writeData(nil, true)
	}
	s.c.flush()
	return n, err
}

// WriteTrailers ends the body with trailers.
func (s *UpstreamStream) WriteTrailers(trailers []http1.Header) error {
	err := s.writeTrailers(trailers)
	s.c.flush()
	return err
}

// Flush sends what was written.
func (s *UpstreamStream) Flush() { s.c.flush() }

// Write sends bytes of the body.
func (s *UpstreamStream) Write(p []byte) (int, error) { return s.WriteBody([][]byte{p}, false) }
