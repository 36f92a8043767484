package response

import (
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// A response to a stream of HTTP/2 differs from one in HTTP/1.1 in this: its headers are written at once and
// go out with what follows, its body has no framing, and its end is said.

// withoutAccept hides what responds to the key of a WebSocket's handshake, which HTTP/2 does not have (RFC 8441
// section 5).
var withoutAccept = forward.NewHeaderChanges(nil, []string{"Sec-WebSocket-Accept"})

// isStream reports whether the response goes to a stream.
func (w *Writer) isStream() bool { return w.r.Conn.Form() == wire.Block }

// beginStream writes the headers that are in w.buf.
func (w *Writer) beginStream(status int, ends bool) {
	w.failed = w.r.Conn.WriteHeaders(status, w.buf.Bytes(), ends, w.r.Time.Clock) != nil
	w.buf.Resize(0)
	w.headersWait, w.ended = true, ends
}

// writeStream writes w.buf, which is a piece of the body now, and then p.
func (w *Writer) writeStream(p []byte, ends bool) error {
	if w.headersWait = false; w.failed {
		return attempt.ErrClientGone
	}
	w.ended = w.ended || ends
	if w.buf.Len()+len(p) == 0 && !ends {
		w.r.Conn.Flush()
		return nil
	}
	return w.r.Conn.WriteBody(w.buf.Bytes(), p, ends, w.r.Time.Clock)
}

// endStream sends what is left of the response, and its end.
func (w *Writer) endStream(trailers []http1.Header) (err error) {
	if w.ended {
		return w.Flush()
	}
	if len(trailers) == 0 {
		err = w.writeStream(nil, true)
	} else if err = w.writeStream(nil, false); err == nil {
		w.ended = true
		err = w.r.Conn.WriteTrailers(trailers, w.r.Time.Clock)
	}
	w.buf.Resize(0)
	return clientGone(err)
}
