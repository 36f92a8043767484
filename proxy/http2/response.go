package http2

import (
	"net"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// WriteHeaders writes the header section of a response, an interim one or the final one: block has its fields
// (see wire.Block). If ends is set, there is nothing after it. It is sent with what is written next, or by
// Flush. An error means that the client has left, or that it reads nothing.
//
// A 101 for the request of a WebSocket becomes the 200 of HTTP/2, after which bytes pass unchanged. Any other
// 2xx did not open it and must not look to the client as if it had.
func (s *Stream) WriteHeaders(status int, block []byte, ends bool) error {
	switch {
	case s.websocket && status == 101:
		status, ends, s.opened = 200, false, true
	case s.websocket && status >= 200 && status < 300:
		status = 502
	}
	return s.writeSection(func(dst []byte) []byte { return append(wire.AppendStatus(dst, status), block...) }, ends)
}

// WriteBody writes p and then q, pieces of the response's body, and ends the response if ends is true.
func (s *Stream) WriteBody(p, q []byte, ends bool) (err error) {
	if len(p) > 0 {
		err = s.writeData(p, ends && len(q) == 0)
	}
	if err == nil && (len(q) > 0 || ends && len(p) == 0) {
		err = s.writeData(q, ends)
	}
	s.c.flush()
	return err
}

// WriteTrailers ends the response with trailers.
func (s *Stream) WriteTrailers(trailers []http1.Header) error {
	err := s.writeTrailers(trailers)
	s.c.flush()
	return err
}

// Flush sends what was written.
func (s *Stream) Flush() { s.c.flush() }

// Write writes bytes of a tunnel, or of a body.
func (s *Stream) Write(p []byte) (int, error) {
	if err := s.WriteBody(p, nil, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite ends a WebSocket's stream in order; the client may go on sending until its own end. For a
// response that is not a tunnel it returns an error and does nothing.
func (s *Stream) CloseWrite() error {
	if !s.opened {
		return net.ErrClosed
	}
	return s.WriteBody(nil, nil, true)
}
