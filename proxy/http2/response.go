package http2

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// errBadResponse means that the response is not HTTP/1.1, which the loop never writes.
var errBadResponse = errors.New("what was written is not an HTTP/1.1 response")

// generatedLimits are for header sections that the proxy wrote itself. Those were within the settings
// before, and only the proxy's own headers were added.
var generatedLimits = http1.Limits{HeaderBytes: 64 << 20, Headers: 1 << 20}

// response decodes HTTP/1.1 and writes it to a stream.
type response struct {
	state     state
	method    []byte
	parsed    http1.Response
	pending   []byte // of a header section that is not complete yet
	remaining int64
	chunked   http1.Chunked

	websocket bool // the request opens a WebSocket
}

type state uint8

const (
	atHeaders state = iota
	atBody
	inTunnel // after the header section that opened a WebSocket
	atEnd
)

func (r *response) begin(method string, websocket bool) {
	r.websocket, r.state, r.pending = websocket, atHeaders, r.pending[:0]
	if websocket {
		method = "GET"
	}
	r.method = append(r.method[:0], method...)
}

// write takes all of p. Bytes after the end of the response are an error.
func (r *response) write(s *Stream, p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		var n int
		var err error
		switch r.state {
		case atHeaders:
			n, err = r.takeHeaders(s, p)
		case atBody:
			n, err = r.takeBody(s, p)
		case inTunnel:
			n, err = len(p), s.writeData(p, false)
		default:
			err = errBadResponse
		}
		p = p[n:]
		if err != nil {
			return total - len(p), err
		}
	}
	return total, nil
}

// takeHeaders consumes bytes of a header section, and acts on it when it is complete.
func (r *response) takeHeaders(s *Stream, p []byte) (int, error) {
	buf, had := p, len(r.pending)
	if had > 0 {
		r.pending = append(r.pending, p...)
		buf = r.pending
	}
	n, err := r.parsed.Parse(buf, generatedLimits, r.method)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if had == 0 {
			r.pending = append(r.pending, p...)
		}
		return len(p), nil
	}
	err = r.headersEnded(s)
	r.pending = r.pending[:0]
	return n - had, err
}

// headersEnded writes the header section just parsed, and prepares for what follows it.
func (r *response) headersEnded(s *Stream) error {
	switched := r.websocket && r.openTunnel()
	if r.parsed.Interim() {
		return s.writeHeaders(r.parsed.Status, r.parsed.Headers, false, r.skips)
	}
	f := r.parsed.Body
	r.state, r.remaining = atBody, f.Length
	switch {
	case switched:
		r.state = inTunnel
	case f.Empty():
		r.state = atEnd
	case f.Kind == http1.BodyChunked:
		r.chunked.Reset(generatedLimits)
	}
	return s.writeHeaders(r.parsed.Status, r.parsed.Headers, r.state == atEnd, r.skips)
}

// skips reports whether a header belongs to an HTTP/1.1 connection (RFC 9113 section 8.2.2).
func (r *response) skips(h *http1.Header) bool {
	switch h.ID {
	case http1.Connection, http1.KeepAlive, http1.ProxyConnection, http1.TransferEncoding, http1.Upgrade:
		return true
	}
	return r.websocket && len(h.Name) == len(secAccept) && string(appendLower(nil, h.Name)) == secAccept // it responds to the key, which is ours
}

const secAccept = "sec-websocket-accept"

func (r *response) takeBody(s *Stream, p []byte) (int, error) {
	switch r.parsed.Body.Kind {
	case http1.BodyLength:
		n := int(min(int64(len(p)), r.remaining))
		if r.remaining -= int64(n); r.remaining == 0 {
			r.state = atEnd
		}
		return n, s.writeData(p[:n], r.state == atEnd)
	case http1.BodyChunked:
		return r.takeChunks(s, p)
	}
	return 0, errBadResponse // the connection's end would end it, which is never written for an HTTP/1.1 client
}

func (r *response) takeChunks(s *Stream, p []byte) (int, error) {
	n, data, err := r.chunked.Next(p)
	if err != nil {
		return n, err
	}
	done := r.chunked.Done()
	trailers := done && len(r.chunked.Trailers()) > 0
	if len(data) > 0 || done && !trailers {
		if err := s.writeData(data, done && !trailers); err != nil {
			return n, err
		}
	}
	if !done {
		return n, nil
	}
	r.state = atEnd
	if trailers {
		return n, s.writeHeaders(0, r.chunked.Trailers(), true, func(*http1.Header) bool { return false })
	}
	return n, nil
}

// appendHandshake appends what the HTTP/1.1 handshake of a WebSocket has besides the request's own headers
// (RFC 8441 section 5, RFC 6455 section 4.1).
func appendHandshake(dst []byte) []byte {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	dst = http1.AppendHeader(dst, "Connection", "Upgrade")
	dst = http1.AppendHeader(dst, "Upgrade", "websocket")
	return http1.AppendHeader(dst, "Sec-WebSocket-Key", base64.StdEncoding.EncodeToString(b[:]))
}

// openTunnel turns the 101 just parsed into the 200 of HTTP/2, after which bytes pass unchanged. Any other
// 2xx did not open a WebSocket and must not look to the client as if it had. It reports whether the tunnel
// opened.
func (r *response) openTunnel() bool {
	switch s := r.parsed.Status; {
	case s == 101:
		r.parsed.Status, r.parsed.Body = 200, http1.Framing{}
		return true
	case s >= 200 && s < 300:
		r.parsed.Status = 502
	}
	return false
}

// CloseWrite ends a WebSocket's stream in order; the client may go on sending until its own end. For a
// response that is not a tunnel it returns an error and does nothing.
func (s *Stream) CloseWrite() error {
	if s.response.state != inTunnel {
		return net.ErrClosed
	}
	err := s.writeData(nil, true)
	s.response.state = atEnd
	s.c.flush()
	return err
}
