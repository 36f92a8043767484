package http2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// The tests write messages as HTTP/1.1, which is short to read. What is here makes calls of them.

// textStream is a client's stream whose request reads as HTTP/1.1 and whose response is written as HTTP/1.1.
type textStream struct {
	*Stream
	reading textReader
	writing textWriter
}

func newTextStream(s *Stream) *textStream {
	t := &textStream{Stream: s}
	t.reading = textReader{from: s}
	return t
}

func (t *textStream) Read(p []byte) (int, error) { return t.reading.Read(p) }

// Write takes all of p. Bytes after the end of the response are an error.
func (t *textStream) Write(p []byte) (int, error) {
	w := &t.writing
	w.parse = func(b []byte) (int, bool, http1.Framing, error) {
		var r http1.Response
		n, err := r.Parse(b, http1.Limits{HeaderBytes: 64 << 20, Headers: 1 << 20}, []byte(t.reading.method))
		if n == 0 || err != nil {
			return n, false, http1.Framing{}, err
		}
		block := blockOf(r.Headers)
		tunnel := t.websocket && r.Status == 101
		if err := t.WriteHeaders(r.Status, block, !r.Interim() && !tunnel && r.Body.Empty()); err != nil {
			return n, false, http1.Framing{}, err
		}
		if tunnel {
			return n, true, http1.Framing{Kind: http1.BodyClose}, nil
		}
		return n, !r.Interim(), r.Body, nil
	}
	w.body = func(p []byte, ends bool) error { return t.WriteBody(p, nil, ends) }
	w.trailers = t.WriteTrailers
	n, err := w.write(p)
	t.Flush()
	return n, err
}

// textUpstream is a stream to an upstream, likewise.
type textUpstream struct {
	*UpstreamStream
	reading textReader
	writing textWriter
}

func newTextUpstream(s *UpstreamStream) *textUpstream {
	if s == nil {
		return nil
	}
	t := &textUpstream{UpstreamStream: s}
	t.reading = textReader{from: s}
	return t
}

func (t *textUpstream) Read(p []byte) (int, error) { return t.reading.Read(p) }

func (t *textUpstream) Write(p []byte) (int, error) {
	w := &t.writing
	w.parse = func(b []byte) (int, bool, http1.Framing, error) {
		var q http1.Request
		n, err := q.Parse(b, http1.Limits{HeaderBytes: 64 << 20, Headers: 1 << 20})
		if n == 0 || err != nil {
			return n, false, http1.Framing{}, err
		}
		head := wire.Head{Form: wire.Block, Method: q.Method, Target: q.Target, Authority: q.Authority, Fields: blockOf(q.Headers)}
		return n, true, q.Body, t.WriteHeaders(&head, q.Body.Empty())
	}
	w.body = func(p []byte, ends bool) error {
		_, err := t.WriteBody([][]byte{p}, ends)
		return err
	}
	w.trailers = t.WriteTrailers
	n, err := w.write(p)
	t.Flush()
	return n, err
}

// Writev writes parts, and cuts them to what is left.
func (t *textUpstream) Writev(parts [][]byte) (sent int, err error) {
	for i, p := range parts {
		n, err := t.Write(p)
		sent += n
		if parts[i] = p[n:]; err != nil {
			return sent, err
		}
	}
	return sent, nil
}

func blockOf(headers []http1.Header) (block []byte) {
	for i := range headers {
		switch h := &headers[i]; h.ID {
		case http1.Host, http1.Connection, http1.KeepAlive, http1.TransferEncoding, http1.Upgrade:
		default:
			block = wire.AppendLine(wire.Block, block, h)
		}
	}
	return block
}

// textWriter decodes HTTP/1.1.
type textWriter struct {
	parse    func([]byte) (n int, final bool, f http1.Framing, err error)
	body     func(p []byte, ends bool) error
	trailers func([]http1.Header) error

	pending []byte
	inBody  bool
	ended   bool
	framing http1.Framing
	left    int64
	chunked http1.Chunked
}

var errNotHTTP1 = errors.New("bytes after the end")

func (w *textWriter) write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		n, err := w.take(p)
		p = p[n:]
		if err != nil {
			return total - len(p), err
		}
	}
	return total, nil
}

func (w *textWriter) take(p []byte) (int, error) {
	switch {
	case w.ended:
		return 0, errNotHTTP1
	case !w.inBody:
		had := len(w.pending)
		w.pending = append(w.pending, p...)
		n, final, f, err := w.parse(w.pending)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return len(p), nil
		}
		w.pending = w.pending[:0]
		if final {
			w.inBody, w.framing, w.left = true, f, f.Length
			w.ended = f.Empty()
		}
		return n - had, nil
	case w.framing.Kind == http1.BodyChunked:
		n, data, err := w.chunked.Next(p)
		if err != nil {
			return n, err
		}
		w.ended = w.chunked.Done()
		if w.ended && len(w.chunked.Trailers()) > 0 {
			return n, w.trailers(w.chunked.Trailers())
		}
		if len(data) > 0 || w.ended {
			return n, w.body(data, w.ended)
		}
		return n, nil
	case w.framing.Kind == http1.BodyClose:
		return len(p), w.body(p, false)
	}
	n := int(min(int64(len(p)), w.left))
	w.left -= int64(n)
	w.ended = w.left == 0
	return n, w.body(p[:n], w.ended)
}

// textReader reads records and bodies as HTTP/1.1.
type textReader struct {
	from interface {
		io.Reader
		ReadBody([]byte) (int, error)
		Trailers() []http1.Header
	}
	method string // of a request

	record  []byte
	text    []byte
	started bool // the final header section was read
	chunks  bool
	over    bool
}

func (r *textReader) Read(p []byte) (int, error) {
	for len(r.text) == 0 {
		switch {
		case !r.started:
			if err := r.readRecord(); err != nil {
				return 0, err
			}
		case r.chunks && !r.over:
			piece := make([]byte, max(1, len(p)))
			n, err := r.from.ReadBody(piece)
			if n > 0 {
				r.text = http1.AppendChunk(r.text, piece[:n])
			}
			if err == io.EOF {
				r.over = true
				r.text = http1.AppendLastChunk(r.text, r.from.Trailers())
				break
			}
			if err != nil {
				return 0, err
			}
		default:
			return r.from.Read(p)
		}
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

func (r *textReader) readRecord() error {
	for len(r.record) < 4 || len(r.record) < int(binary.BigEndian.Uint32(r.record)) {
		want := 4
		if len(r.record) >= 4 {
			want = int(binary.BigEndian.Uint32(r.record))
		}
		piece := make([]byte, want-len(r.record))
		n, err := r.from.Read(piece)
		r.record = append(r.record, piece[:n]...)
		if err != nil {
			return err
		}
	}
	b := r.record
	r.record = nil
	mark, status, fields := http1.BodyMark(b[4]), binary.BigEndian.Uint16(b[5:]), binary.BigEndian.Uint32(b[7:])
	n, m := binary.BigEndian.Uint32(b[11:]), binary.BigEndian.Uint32(b[15:])
	b = b[19:]
	first, second := string(b[:n]), string(b[n:n+m])
	b = b[n+m:]
	var lines []string
	for range fields {
		n, v := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
		lines = append(lines, string(b[8:8+n+2+v+2]))
		b = b[8+n+2+v+2:]
	}
	length := slices.ContainsFunc(lines, func(l string) bool { return len(l) > 15 && l[:15] == "Content-Length:" })
	r.started = status == 0 || status >= 200
	r.chunks = mark == http1.EndsStream && !length
	if status == 0 {
		r.method = first
		r.text = fmt.Appendf(nil, "%s %s HTTP/1.1\r\n", first, second)
	} else {
		r.text = fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n", status, first)
		if mark == http1.EndedHere && status >= 200 && !length && status != 204 && status != 304 {
			lines = append([]string{"Content-Length: 0\r\n"}, lines...)
		}
	}
	if r.chunks {
		at := 0
		if status == 0 && len(lines) > 0 {
			at = 1 // behind Host
		}
		lines = slices.Insert(lines, at, "Transfer-Encoding: chunked\r\n")
	}
	for _, l := range lines {
		r.text = append(r.text, l...)
	}
	r.text = append(r.text, "\r\n"...)
	return nil
}

var (
	_ net.Conn = (*textStream)(nil)
	_ net.Conn = (*textUpstream)(nil)
)
