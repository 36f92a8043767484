package http2

import (
	"errors"
	"strconv"
	"sync"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// errBadRequest means that the request is not HTTP/1.1, which the loop never writes.
var errBadRequest = errors.New("what was written is not an HTTP/1.1 request")

// outgoing decodes a request in HTTP/1.1 and sends it on a stream.
type outgoing struct {
	state     state
	parsed    http1.Request
	pending   []byte // of a header section that is not complete yet
	remaining int64
	chunked   http1.Chunked
}

var outgoings = sync.Pool{New: func() any { return new(outgoing) }}

// reset drops the request, and keeps the memory of its headers.
func (r *outgoing) reset() {
	r.parsed.Reset()
	r.state, r.pending, r.remaining = atHeaders, nil, 0
}

// write takes all of p. Bytes after the end of the request are an error.
func (r *outgoing) write(s *UpstreamStream, p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		var n int
		var err error
		switch r.state {
		case atHeaders:
			n, err = r.takeHeaders(s, p)
		case atBody:
			n, err = r.takeBody(s, p)
		default:
			err = errBadRequest
		}
		p = p[n:]
		if err != nil {
			return total - len(p), err
		}
	}
	return total, nil
}

// takeHeaders consumes bytes of a header section, and sends it when it is complete.
func (r *outgoing) takeHeaders(s *UpstreamStream, p []byte) (int, error) {
	buf, had := p, len(r.pending)
	if had > 0 {
		r.pending = append(r.pending, p...)
		buf = r.pending
	}
	n, err := r.parsed.Parse(buf, generatedLimits)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if had == 0 {
			r.pending = append(r.pending, p...)
		}
		return len(p), nil
	}
	f := r.parsed.Body
	if r.state, r.remaining = atBody, f.Length; f.Empty() {
		r.state = atEnd
	}
	if f.Kind == http1.BodyChunked {
		r.chunked.Reset(generatedLimits)
	}
	err = s.begin(&r.parsed)
	r.parsed.Detach()
	if err != nil {
		return 0, err
	}
	return n - had, nil
}

func (r *outgoing) takeBody(s *UpstreamStream, p []byte) (int, error) {
	if r.parsed.Body.Kind == http1.BodyChunked {
		return r.takeChunks(s, p)
	}
	n := int(min(int64(len(p)), r.remaining))
	if r.remaining -= int64(n); r.remaining == 0 {
		r.state = atEnd
	}
	return n, s.writeData(p[:n], r.state == atEnd)
}

func (r *outgoing) takeChunks(s *UpstreamStream, p []byte) (int, error) {
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

// Entries of the static table (RFC 7541 appendix A) that requests begin with.
const (
	indexAuthority = 1
	indexGet       = 2
	indexPost      = 3
	indexPath      = 4
	indexHTTP      = 6
	indexHTTPS     = 7
	indexLength    = 28
)

// encodeRequest encodes the header section of a request, with the length of its body if it has one. It is
// called with mu held, and the block is valid until the next call.
func (c *link) encodeRequest(q *http1.Request, secure bool) []byte {
	b := c.beginBlock()
	switch string(q.Method) {
	case "GET":
		b = append(b, 0x80|indexGet)
	case "POST":
		b = append(b, 0x80|indexPost)
	default:
		b = appendString(append(b, indexGet), q.Method)
	}
	if secure {
		b = append(b, 0x80|indexHTTPS)
	} else {
		b = append(b, 0x80|indexHTTP)
	}
	b = append(b, indexPath)
	if n := len(q.Path); q.HasQuery {
		b = appendInteger(b, 0, 7, n+1+len(q.Query))
		b = append(append(append(b, q.Path...), '?'), q.Query...)
	} else {
		b = appendString(b, q.Path)
	}
	if len(q.Authority) > 0 {
		b = appendString(append(b, indexAuthority), q.Authority)
	}
	if q.Body.Kind == http1.BodyLength {
		var digits [20]byte
		b = appendString(appendInteger(b, 0, 4, indexLength), strconv.AppendInt(digits[:0], q.Body.Length, 10))
	}
	for i := range q.Headers {
		if h := &q.Headers[i]; !ofConnection(h) {
			b = appendField(b, h.Name, h.Value)
		}
	}
	if c.encoded = b; cap(b) > buffer.Small {
		c.encoded = nil // an idle connection holds little
	}
	return b
}

// ofConnection reports whether a header of a request belongs to an HTTP/1.1 connection (RFC 9113 section
// 8.2.2), or to what the pseudo-headers say.
func ofConnection(h *http1.Header) bool {
	switch h.ID {
	case http1.Host, http1.ContentLength, http1.TransferEncoding, http1.Connection, http1.KeepAlive, http1.ProxyConnection, http1.Upgrade,
		http1.HTTP2Settings:
		return true
	case http1.TE:
		return !http1.EqualFold(h.Value, "trailers")
	}
	return false
}
