package bridge

import (
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

// Sender is a connection that speaks HTTP/2, as far as a Stream uses it. An
// http.ClientConn is one. RoundTrip must send the request once at most.
type Sender interface {
	RoundTrip(*http.Request) (*http.Response, error)
	Release()
}

// UpstreamStream is one request to an upstream that speaks HTTP/2, as an HTTP/1.1
// connection: what is written to it is sent as a request, and it reads as the
// response, which may begin before the request's end. It carries one request;
// what follows it is an error.
//
// The sender's place must have been reserved; Close gives it back. One
// goroutine writes and one reads; any may set deadlines and Close.
type UpstreamStream struct {
	in       buffer // the response
	body     buffer // of the request
	sender   Sender
	scheme   string
	local    net.Addr
	remote   net.Addr
	mapError func(error) error
	ctx      context.Context
	cancel   context.CancelFunc

	state     state
	parsed    http1.Request
	pending   []byte // of a header section that is not whole yet
	remaining int64
	chunked   http1.Chunked
	req       *http.Request
	trailers  []http1.Header // of the request, once its body ended

	mu    sync.Mutex // guards all below
	begun bool       // the place is used up, or given back
	done  bool       // run has returned
	grace *time.Timer
	ended func() // nil: not finished, or already called
}

// UpstreamStreamOptions say what a Stream is on.
type UpstreamStreamOptions struct {
	Scheme        string // "http" or "https", for :scheme
	Local, Remote net.Addr
	// MapError turns an error of RoundTrip into the one that reading gives.
	MapError func(error) error
}

// NewUpstreamStream makes a stream of to's reserved place.
func NewUpstreamStream(to Sender, o UpstreamStreamOptions) *UpstreamStream {
	s := &UpstreamStream{sender: to, scheme: o.Scheme, local: o.Local, remote: o.Remote, mapError: o.MapError}
	s.in.init()
	s.body.init()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Read gives the response.
func (s *UpstreamStream) Read(p []byte) (int, error) { return s.in.Read(p) }

// Write takes the request. A head is taken at once; a body waits while more
// than bufferLimit bytes of it were not sent.
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

// errBadRequest is a request that is not HTTP/1.1, which the loop never writes.
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
	s.chunked.Reset()
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

// makeRequest makes of the header section what net/http sends. The target goes as it
// came: a URL in the opaque form is not encoded anew.
func (s *UpstreamStream) makeRequest() *http.Request {
	h := &s.parsed
	host := string(h.Authority)
	opaque := string(h.Path)
	if h.HasQuery {
		opaque += "?" + string(h.Query)
	}
	if strings.HasPrefix(opaque, "//") {
		opaque = s.scheme + "://" + host + opaque // net/http would take it for an authority, and takes this off again
	}
	req := &http.Request{
		Method: string(h.Method), URL: &url.URL{Scheme: s.scheme, Host: host, Opaque: opaque}, Host: host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, len(h.Headers)),
	}
	for i := range h.Headers {
		addRequestHeader(req, &h.Headers[i])
	}
	if req.Header["User-Agent"] == nil {
		req.Header["User-Agent"] = nil // keeps net/http from naming itself
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

// addRequestHeader leaves out what belongs to an HTTP/1.1 connection.
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
		n, err := s.body.Write(p[:min(int64(len(p)), s.remaining)])
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
		if m, err := s.body.Write(data); err != nil {
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

// Read gives the body. At its end it fills in the trailers that were announced,
// which is when net/http looks at them.
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

// errTooManyInterim ends a stream. net/http leaves it to who takes 1xx responses
// to bound them.
var errTooManyInterim = errors.New("more interim responses than are read")

// gotInterim passes a 1xx response on. It is called by the goroutine that
// reads for all streams and must not wait.
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
	defer res.Body.Close() //nolint:errcheck // nothing is done about it
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
		err = s.in.fill(bodyOf(res, f), f, func() http.Header { return res.Trailer })
	}
	s.in.close(err)
	if err == io.EOF {
		awaitEndStream(res.Body)
	}
}

// bodyOf ends with the body's last byte where f has a length, else with the stream.
func bodyOf(res *http.Response, f http1.Framing) io.Reader {
	if f.Kind == http1.BodyLength {
		return io.LimitReader(res.Body, f.Length)
	}
	return res.Body
}

// maxAfterBody bounds what is read behind a whole response, which should be nothing.
const maxAfterBody = 512

// awaitEndStream reads on until the upstream ends the stream (END_STREAM), which it may do
// later than with the last byte: a stream that is closed before is reset, and its
// handler takes that for a client that left.
func awaitEndStream(body io.Reader) {
	var buf [maxAfterBody]byte
	_, _ = io.ReadFull(body, buf[:])
}

// framingOfResponse is how the response goes over HTTP/1.1. HTTP/2 has trailers
// behind a body with a length as well; in HTTP/1.1 only chunks can carry them.
func framingOfResponse(method string, res *http.Response) http1.Framing {
	switch {
	case method == http.MethodHead || res.StatusCode < 200 || res.StatusCode == 204 || res.StatusCode == 304:
		return http1.Framing{}
	case res.ContentLength < 0, len(res.Trailer) > 0, res.ContentLength > 0 && isGRPC(res.Header):
		return http1.Framing{Kind: http1.BodyChunked}
	}
	return http1.Framing{Kind: http1.BodyLength, Length: res.ContentLength}
}

// isGRPC: its trailers come unannounced.
func isGRPC(h http.Header) bool { return strings.HasPrefix(h.Get("Content-Type"), "application/grpc") }

// Finish ends the use of a stream whose response was read whole. It does not wait. The
// upstream has the grace to end the stream; then the stream is reset. ended is called once
// the stream is over, perhaps before Finish returns.
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

// runDone tells whoever finished the stream.
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

// Close ends the stream; the upstream is told where the exchange is not over.
// It may be called at any time, more than once, and does not wait.
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

// SetReadDeadline ends reads at t.
func (s *UpstreamStream) SetReadDeadline(t time.Time) error {
	s.in.setReadDeadline(t)
	return nil
}

// SetWriteDeadline ends writes at t.
func (s *UpstreamStream) SetWriteDeadline(t time.Time) error {
	s.body.setWriteDeadline(t)
	return nil
}

// SetDeadline is both.
func (s *UpstreamStream) SetDeadline(t time.Time) error {
	s.in.setReadDeadline(t)
	s.body.setWriteDeadline(t)
	return nil
}

// LocalAddr is the address of the connection that the stream is on.
func (s *UpstreamStream) LocalAddr() net.Addr { return s.local }

// RemoteAddr is the upstream's.
func (s *UpstreamStream) RemoteAddr() net.Addr { return s.remote }

var _ net.Conn = (*UpstreamStream)(nil)
