package bridge

import (
	"errors"
	"net/http"

	"github.com/retryproxy/retryproxy/proxy/http1"
	pool "github.com/retryproxy/retryproxy/proxy/internal/buffer"
)

// errBadResponse means that the response is not HTTP/1.1, which the loop never writes.
var errBadResponse = errors.New("what was written is not an HTTP/1.1 response")

// generatedLimits are for header sections that the proxy wrote itself. Those were within the
// settings before, and only the proxy's own headers were added.
var generatedLimits = http1.Limits{HeaderBytes: 64 << 20, Headers: 1 << 20}

// response decodes HTTP/1.1 and writes it to an http.ResponseWriter.
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

func (o *response) reset(method string) { o.method = []byte(method) }

// write takes all of p. Bytes after the end of the response are an error.
func (o *response) write(w http.ResponseWriter, p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		var n int
		var err error
		switch o.state {
		case atHeaders:
			n, err = o.takeHeaders(w, p)
		case atBody:
			n, err = o.takeBody(w, p)
		case inTunnel:
			n, err = writeData(w, p)
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
func (o *response) takeHeaders(w http.ResponseWriter, p []byte) (int, error) {
	buf, had := p, len(o.pending)
	if had > 0 {
		o.pending = append(o.pending, p...)
		buf = o.pending
	}
	n, err := o.parsed.Parse(buf, generatedLimits, o.method)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if had == 0 {
			o.pending = append(o.pending, p...)
		}
		return len(p), nil
	}
	o.begin(w)
	o.pending = o.pending[:0]
	return n - had, nil
}

// begin writes the header section just parsed, and prepares for what follows it.
func (o *response) begin(w http.ResponseWriter) {
	switched := o.websocket && o.openTunnel()
	h := w.Header()
	clear(h)
	for i := range o.parsed.Headers {
		o.addHeader(h, &o.parsed.Headers[i])
	}
	if o.parsed.Interim() {
		// net/http may still read h after the stream was reset, unless it has this name: then it reads a
		// copy, without the name.
		h["Content-Length"] = nil
		w.WriteHeader(o.parsed.Status)
		clear(h)
		return
	}
	// A nil value keeps the standard library from adding one.
	for _, name := range []string{"Date", "Content-Type", "Content-Length"} {
		if _, set := h[name]; !set {
			h[name] = nil
		}
	}
	w.WriteHeader(o.parsed.Status)
	f := o.parsed.Body
	o.state, o.remaining = atBody, f.Length
	switch {
	case switched:
		o.state = inTunnel
	case f.Empty():
		o.state = atEnd
	}
	if f.Kind == http1.BodyChunked {
		o.chunked.Reset(generatedLimits)
	}
}

// addHeader adds a header unless it belongs to an HTTP/1.1 connection (RFC 9113 section 8.2.2).
func (o *response) addHeader(h http.Header, f *http1.Header) {
	switch f.ID {
	case http1.Connection, http1.KeepAlive, http1.ProxyConnection, http1.TransferEncoding, http1.Upgrade:
		return
	}
	name := http.CanonicalHeaderKey(string(f.Name))
	if o.websocket && name == "Sec-Websocket-Accept" {
		return // it responds to the key, which is ours
	}
	h[name] = append(h[name], string(f.Value))
}

func (o *response) takeBody(w http.ResponseWriter, p []byte) (int, error) {
	switch o.parsed.Body.Kind {
	case http1.BodyLength:
		n := int(min(int64(len(p)), o.remaining))
		o.remaining -= int64(n)
		if o.remaining == 0 {
			o.state = atEnd
		}
		return writeData(w, p[:n])
	case http1.BodyChunked:
		return o.takeChunks(w, p)
	}
	return 0, errBadResponse // the connection's end would end it, which is never written for an HTTP/1.1 client
}

// writtenWhole is up to how many bytes net/http copies before Write returns.
const writtenWhole = 4 << 10

// writeData gives p to w. After a Write that failed because the stream was reset, net/http may still
// read what it was given, and p is soon used for another client. So w gets a copy, which goes back
// only after a Write that did not fail.
func writeData(w http.ResponseWriter, p []byte) (int, error) {
	if len(p) <= writtenWhole {
		return w.Write(p)
	}
	own := pool.Get(pool.Medium)
	written := 0
	for written < len(p) {
		n, err := w.Write(own[:copy(own, p[written:])])
		written += n
		if err != nil {
			return written, err
		}
	}
	pool.Put(own)
	return written, nil
}

func (o *response) takeChunks(w http.ResponseWriter, p []byte) (int, error) {
	n, data, err := o.chunked.Next(p)
	if err != nil {
		return n, err
	}
	if len(data) > 0 {
		if _, err := writeData(w, data); err != nil {
			return n, err
		}
	}
	if o.chunked.Done() {
		o.state = atEnd
		h := w.Header()
		for _, f := range o.chunked.Trailers() {
			name := http.TrailerPrefix + string(f.Name)
			h[name] = append(h[name], string(f.Value))
		}
	}
	return n, nil
}
