package bridge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// Sender is the part of an HTTP/2 connection that a Stream uses. An http.ClientConn is one.
// RoundTrip must send the request at most once.
type Sender interface {
	RoundTrip(*http.Request) (*http.Response, error)
	Release()
}

// UpstreamStream is one request to an upstream over HTTP/2, as an HTTP/1.1 connection. What is
// written to it is sent as a request, and it reads as the response, which may begin before the
// request ends. It carries one request; bytes after it are an error.
//
// The sender's slot must have been reserved; Close returns it. One goroutine writes and one reads.
// Any goroutine may set deadlines and call Close.
type UpstreamStream struct {
	in       buffer // the response
	body     buffer // of the request
	sender   Sender
	scheme   string
	local    net.Addr
	remote   net.Addr
	mapError func(error) error
	ahead    ReadAhead
	uploads  *Uploads
	ctx      context.Context
	cancel   context.CancelFunc

	state     state
	parsed    http1.Request
	pending   []byte // of a header section that is not complete yet
	remaining int64
	chunked   http1.Chunked
	req       *http.Request
	trailers  []http1.Header // of the request, after its body ended

	mu    sync.Mutex // guards all fields below
	begun bool       // the slot is used or returned
	done  bool       // run has returned
	grace *time.Timer
	ended func() // nil: not finished, or already called
}

// UpstreamStreamOptions describe the connection of an UpstreamStream.
type UpstreamStreamOptions struct {
	Scheme        string // "http" or "https", for :scheme
	Local, Remote net.Addr
	// MapError converts an error of RoundTrip to the one that Read returns.
	MapError func(error) error
	Ahead    ReadAhead // of the response
	Uploads  *Uploads  // of the connection; nil: nobody asks for them
}

// NewUpstreamStream returns a stream on the reserved slot of to.
func NewUpstreamStream(to Sender, o UpstreamStreamOptions) *UpstreamStream {
	s := &UpstreamStream{sender: to, scheme: o.Scheme, local: o.Local, remote: o.Remote, mapError: o.MapError, ahead: o.Ahead, uploads: cmp.Or(o.Uploads, new(Uploads))}
	s.in.init(o.Ahead.buffer())
	s.body.init(o.Ahead.buffer())
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Read reads the response.
func (s *UpstreamStream) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write takes the request. Headers are accepted at once; a body waits while more than bufferLimit
// bytes of it are unsent.
func (s *UpstreamStream) Write(p []byte) (int, error) {
	total := len(p)
	for len(p) > 0 {
		var n int
		var err error
		switch s.state {
		case atHeaders:
			n, err = s.takeHeaders(p)
		case atBody:
			n, err = s.takeBody(p)
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

// errBadRequest means that the request is not HTTP/1.1, which the loop never writes.
var errBadRequest = errors.New("what was written is not an HTTP/1.1 request")

func (s *UpstreamStream) takeHeaders(p []byte) (int, error) {
	buf, had := p, len(s.pending)
	if had > 0 {
		s.pending = append(s.pending, p...)
		buf = s.pending
	}
	n, err := s.parsed.Parse(buf, generatedLimits)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		if had == 0 {
			s.pending = append(s.pending, p...)
		}
		return len(p), nil
	}
	if err := s.begin(); err != nil {
		return 0, err
	}
	return n - had, nil
}

// begin sends the header section just parsed.
func (s *UpstreamStream) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun {
		return net.ErrClosed
	}
	s.begun = true
	f := s.parsed.Body
	s.state, s.remaining = atBody, f.Length
	s.chunked.Reset(generatedLimits)
	s.req = s.makeRequest()
	if f.Empty() {
		s.state = atEnd
		s.body.close(io.EOF)
	} else {
		s.req.Body = (*requestBody)(s)
	}
	go s.run(s.req)
	return nil
}

// makeRequest converts the header section to a request for net/http. The target is sent as
// received: a URL in the opaque form is not encoded anew.
func (s *UpstreamStream) makeRequest() *http.Request {
	h := &s.parsed
	host := string(h.Authority)
	opaque := string(h.Path)
	if h.HasQuery {
		opaque += "?" + string(h.Query)
	}
	if strings.HasPrefix(opaque, "//") {
		opaque = s.scheme + "://" + host + opaque // net/http would parse it as an authority; it removes this prefix again
	}
	req := &http.Request{
		Method: string(h.Method), URL: &url.URL{Scheme: s.scheme, Host: host, Opaque: opaque}, Host: host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, len(h.Headers)),
	}
	for i := range h.Headers {
		addRequestHeader(req, &h.Headers[i])
	}
	if req.Header["User-Agent"] == nil {
		req.Header["User-Agent"] = nil // keeps net/http from adding its own
	}
	switch h.Body.Kind {
	case http1.BodyLength:
		req.ContentLength = h.Body.Length
	case http1.BodyChunked:
		req.ContentLength = -1
	}
	trace := &httptrace.ClientTrace{Got1xxResponse: s.gotInterim}
	return req.WithContext(httptrace.WithClientTrace(s.ctx, trace))
}

// addRequestHeader adds a header unless it belongs to an HTTP/1.1 connection.
func addRequestHeader(req *http.Request, f *http1.Header) {
	switch f.ID {
	case http1.Host, http1.ContentLength, http1.TransferEncoding, http1.Connection, http1.KeepAlive, http1.ProxyConnection,
		http1.Upgrade, http1.HTTP2Settings:
		return
	case http1.Trailer:
		for e, rest := http1.NextToken(f.Value); e != nil; e, rest = http1.NextToken(rest) {
			if req.Trailer == nil {
				req.Trailer = http.Header{}
			}
			req.Trailer[http.CanonicalHeaderKey(string(e))] = nil
		}
		return
	}
	name := http.CanonicalHeaderKey(string(f.Name))
	req.Header[name] = append(req.Header[name], string(f.Value))
}

func (s *UpstreamStream) takeBody(p []byte) (int, error) {
	if s.parsed.Body.Kind == http1.BodyLength {
		n, err := s.uploads.write(&s.body, p[:min(int64(len(p)), s.remaining)])
		if s.remaining -= int64(n); s.remaining == 0 {
			s.endBody()
		}
		return n, err
	}
	n, data, err := s.chunked.Next(p)
	if err != nil {
		return n, err
	}
	if len(data) > 0 {
		if m, err := s.uploads.write(&s.body, data); err != nil {
			return n - len(data) + m, err
		}
	}
	if s.chunked.Done() {
		s.trailers = s.chunked.Trailers()
		s.endBody()
	}
	return n, nil
}

func (s *UpstreamStream) endBody() {
	s.state = atEnd
	s.body.close(io.EOF)
}

// requestBody is the request's body for net/http.
type requestBody UpstreamStream

// Read reads the body. At its end it sets the announced trailers; net/http reads them at that
// point.
func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if err == io.EOF {
		for _, f := range b.trailers {
			name := http.CanonicalHeaderKey(string(f.Name))
			if _, announced := b.req.Trailer[name]; announced {
				b.req.Trailer[name] = append(b.req.Trailer[name], string(f.Value))
			}
		}
	}
	return n, err
}

// Close is called when net/http needs no more of the body.
func (b *requestBody) Close() error {
	b.body.discard(net.ErrClosed)
	return nil
}

// errTooManyInterim ends a stream. net/http leaves the limit on 1xx responses to their receiver.
var errTooManyInterim = errors.New("more interim responses than are read")

// gotInterim passes a 1xx response on. The goroutine that reads for all streams calls it, so it
// must not wait.
func (s *UpstreamStream) gotInterim(code int, h textproto.MIMEHeader) error {
	section := http1.AppendStatusLine(nil, code, http.StatusText(code))
	section, ok := appendHeaders(section, http.Header(h), isHopByHop)
	if ok && code != http.StatusSwitchingProtocols && !s.in.tryWrite(append(section, "\r\n"...)) {
		return errTooManyInterim
	}
	return nil
}

// run sends the request and makes the response readable.
func (s *UpstreamStream) run(req *http.Request) {
	defer s.runDone()
	res, err := s.sender.RoundTrip(req)
	if err != nil {
		if s.mapError != nil {
			err = s.mapError(err)
		}
		s.in.close(err)
		s.body.discard(net.ErrClosed)
		return
	}
	defer res.Body.Close() // its error has no consequence
	f := framingOfResponse(req.Method, res)
	section, ok := appendResponse(nil, res, f)
	if !ok {
		s.in.close(errBadResponse)
		return
	}
	if _, err := s.in.Write(section); err != nil {
		return
	}
	err = io.EOF
	if f.Kind != http1.BodyNone {
		err = s.in.fill(bodyOf(res, f), f, func() http.Header { return res.Trailer }, s.ahead)
	}
	s.in.close(err)
	if err == io.EOF {
		awaitEndStream(res.Body)
	}
}

// bodyOf returns a body that ends with its last byte if f has a length, otherwise with the stream.
func bodyOf(res *http.Response, f http1.Framing) io.Reader {
	if f.Kind == http1.BodyLength {
		return io.LimitReader(res.Body, f.Length)
	}
	return res.Body
}

// maxAfterBody bounds what is read after a complete response, which should be nothing.
const maxAfterBody = 512

// awaitEndStream reads until the upstream ends the stream (END_STREAM), which may come later than
// the last byte. A stream closed earlier is reset, and its handler would see a client that left.
func awaitEndStream(body io.Reader) {
	var buf [maxAfterBody]byte
	_, _ = io.ReadFull(body, buf[:])
}

// framingOfResponse returns the framing of the response over HTTP/1.1. HTTP/2 has trailers after a
// body with a length too; in HTTP/1.1 only chunks can carry them.
func framingOfResponse(method string, res *http.Response) http1.Framing {
	switch {
	case method == http.MethodHead || res.StatusCode < 200 || res.StatusCode == 204 || res.StatusCode == 304:
		return http1.Framing{}
	case res.ContentLength < 0, len(res.Trailer) > 0, res.ContentLength > 0 && isGRPC(res.Header):
		return http1.Framing{Kind: http1.BodyChunked}
	}
	return http1.Framing{Kind: http1.BodyLength, Length: res.ContentLength}
}

// isGRPC reports whether the response is gRPC: its trailers come unannounced.
func isGRPC(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/grpc") }

// Finish ends the use of a stream whose response was read whole. It does not wait. The upstream
// has the time grace to end the stream; then the stream is reset. ended is called once when the
// stream is over, possibly before Finish returns.
func (s *UpstreamStream) Finish(grace time.Duration, ended func()) {
	s.in.discard(net.ErrClosed)
	s.mu.Lock()
	over := s.done
	if !over {
		s.ended = ended
		s.grace = time.AfterFunc(grace, func() { _ = s.Close() })
	}
	s.mu.Unlock()
	if over {
		_ = s.Close()
		ended()
	}
}

// runDone notifies the goroutine that finished the stream.
func (s *UpstreamStream) runDone() {
	s.mu.Lock()
	s.done = true
	ended := s.ended
	s.ended = nil
	if s.grace != nil {
		s.grace.Stop()
	}
	s.mu.Unlock()
	if ended != nil {
		_ = s.Close()
		ended()
	}
}

// Close ends the stream. It resets the stream if the exchange is not complete. It does not wait,
// is safe for concurrent use, and may be called more than once.
func (s *UpstreamStream) Close() error {
	s.cancel()
	s.in.discard(net.ErrClosed)
	s.body.discard(net.ErrClosed)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.begun {
		s.begun = true
		s.sender.Release()
	}
	return nil
}

// SetReadDeadline makes reads end at t.
func (s *UpstreamStream) SetReadDeadline(t time.Time) error {
	s.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline makes writes end at t.
func (s *UpstreamStream) SetWriteDeadline(t time.Time) error {
	s.body.setWriteDeadline(t)
	return nil
}

// SetDeadline sets both deadlines.
func (s *UpstreamStream) SetDeadline(t time.Time) error {
	s.in.setReadDeadline(t)
	s.body.setWriteDeadline(t)
	return nil
}

// LocalAddr returns the local address of the stream's connection.
func (s *UpstreamStream) LocalAddr() net.Addr { return s.local }

// RemoteAddr returns the upstream's address.
func (s *UpstreamStream) RemoteAddr() net.Addr { return s.remote }

var _ net.Conn = (*UpstreamStream)(nil)

// state is how much of a request was taken.
type state uint8

const (
	atHeaders state = iota
	atBody
	atEnd
)

// errBadResponse means that a response has headers that could end a line.
var errBadResponse = errors.New("the response cannot be written as HTTP/1.1")
