package everyrule

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/peers"
)

// afterwards is the path of the request that shows that a client is still served.
const afterwards = "/after"

// call is a client's request.
type call struct {
	method   string // "": GET
	path     string // "": /rule
	headers  []string
	body     []byte
	unknown  bool // its length is not announced
	trailers http.Header
	// upload writes the body instead, which then has no announced length; an
	// error breaks the request off.
	upload func(r *run, w io.Writer) error
	rude   bool // it leaves by a reset
	unread bool // the response's body is not read before the test says so
}

func (c *call) verb() string {
	if c.method == "" {
		return http.MethodGet
	}
	return c.method
}

// clientResult is what a client got.
type clientResult struct {
	status   int // 0: nothing
	header   http.Header
	trailers http.Header
	body     []byte
	interim  []int
	err      error // what ended it
}

// protoClient is a client that speaks one protocol, with at most one connection
// at a time for what comes after one another.
type protoClient struct {
	r      *run
	client *http.Client
	leave  context.CancelFunc // of the last request
	got    atomic.Int64       // bytes of the response's body so far
	put    atomic.Int64       // bytes of an endless upload
	result *clientResult      // the last one, once it has come
	read   chan struct{}      // closed to let an unread answer be read
}

func newProtoClient(r *run, speaks proto) *protoClient {
	c := &protoClient{r: r, client: peers.HTTP2Client(r, nil), read: make(chan struct{})}
	tr := c.client.Transport.(*http.Transport)
	if speaks == one {
		tr.Protocols.SetUnencryptedHTTP2(false)
		tr.Protocols.SetHTTP1(true)
	}
	tr.ExpectContinueTimeout = time.Minute
	return c
}

// begin sends a request; its response comes by the channel.
func (c *protoClient) begin(what *call) <-chan *clientResult {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c.leave = cancel
	got := &clientResult{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		got.interim = append(got.interim, code)
		return nil
	}})
	if what.rude {
		c.client.Transport.(*http.Transport).DialContext = rudely
	}
	req := c.request(ctx, what)
	done := make(chan *clientResult, 1)
	go func() {
		defer cancel()
		c.exchange(req, what, got)
		if what.path != afterwards {
			c.result = got
		}
		done <- got
	}()
	return done
}

func (c *protoClient) request(ctx context.Context, what *call) *http.Request {
	path := what.path
	if path == "" {
		path = "/rule"
	}
	req, err := http.NewRequestWithContext(ctx, what.verb(), "http://"+c.r.p.Addr+path, nil)
	if err != nil {
		c.r.Fatal(err)
	}
	for i := 0; i < len(what.headers); i += 2 {
		req.Header.Add(what.headers[i], what.headers[i+1])
	}
	switch {
	case what.upload != nil:
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(what.upload(c.r, w)) }()
		req.Body, req.ContentLength, req.Trailer = r, -1, what.trailers
	case what.body != nil:
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(what.body)), int64(len(what.body))
		if what.unknown || what.trailers != nil {
			req.ContentLength, req.Trailer = -1, what.trailers
		}
	}
	return req
}

func (c *protoClient) exchange(req *http.Request, what *call, got *clientResult) {
	res, err := c.client.Do(req)
	if err != nil {
		got.err = err
		return
	}
	defer res.Body.Close()
	got.status, got.header = res.StatusCode, res.Header
	if what.unread {
		<-c.read
	}
	var body bytes.Buffer
	_, got.err = io.Copy(io.MultiWriter(&body, counting{&c.got}), res.Body)
	got.body, got.trailers = body.Bytes(), res.Trailer
}

// rudely dials a connection that ends by a reset.
func rudely(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		err = nc.(*net.TCPConn).SetLinger(0)
	}
	return nc, err
}

// counting counts what is written to it.
type counting struct{ n *atomic.Int64 }

func (c counting) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}
