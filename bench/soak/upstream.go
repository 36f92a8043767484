package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// Headers by which clients and upstream know a request.
const (
	fieldID      = "X-Soak-Id"
	fieldAttempt = "X-Soak-Attempt" // of a response: the attempt that it is for, from 0
	fieldSum     = "X-Soak-Sum"     // a trailer, from body.sum
	fieldTwice   = "X-Soak-Twice"   // comes twice, "a" then "b"
)

// upstream is the server that fails in every way. It reads requests with net/http, so that what the
// proxy sends is judged by somebody else's parser, and writes responses byte by byte.
type upstream struct {
	*soak
	rig.Server
	addr string
	ctx  context.Context // ends with the run
}

// start starts an upstream. Unless steady, it stops listening for a moment now and then. end waits
// for all connections.
func (s *soak) start(steady bool) (addr string, end func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	u := &upstream{soak: s, addr: l.Addr().String(), ctx: ctx}
	u.Take = u.serve
	ended := make(chan struct{})
	go func() { defer close(ended); u.listen(l, steady) }()
	return u.addr, func() {
		cancel()
		<-ended
		u.Each(func(c net.Conn) { _ = c.Close() })
		u.Wait(time.Minute)
	}, nil
}

// Times of an upstream that stops listening now and then.
const (
	listensFor = 5 * time.Second
	absentFor  = 150 * time.Millisecond
)

func (u *upstream) listen(l net.Listener, steady bool) {
	for {
		stop := context.AfterFunc(u.ctx, func() { _ = l.Close() })
		if !steady {
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(listensFor))
		}
		u.Accept(l)
		stop()
		_ = l.Close()
		if !rig.Sleep(u.ctx, absentFor) {
			return
		}
		var err error
		if l, err = net.Listen("tcp", u.addr); err != nil {
			u.violation("upstream", "listen again: %v", err)
			return
		}
	}
}

func (u *upstream) serve(c net.Conn) {
	in := bufio.NewReaderSize(c, 16<<10)
	for {
		req, err := http.ReadRequest(in)
		if err != nil {
			u.noRequest(err)
			return
		}
		if x := u.begin(c, req); x == nil || !x.perform() {
			return
		}
	}
}

// noRequest judges why there is no request. That a connection ends instead of one is right.
func (u *upstream) noRequest(err error) {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) {
		return
	}
	u.violation("malformed request", "the proxy sent a request that net/http refuses: %v", err)
}

// exchange is one attempt at the upstream.
type exchange struct {
	*upstream
	net.Conn
	req    *http.Request
	r      *record
	n      int // number of the attempt
	script script
	rand   *rand.Rand // for what the client need not know
}

// begin finds out which request came, and checks its headers. nil: nobody waits for it.
func (u *upstream) begin(c net.Conn, req *http.Request) *exchange {
	u.Count(attempts, 1)
	id, err := strconv.ParseUint(req.Header.Get(fieldID), 10, 64)
	if err != nil {
		u.violation("request without name", "%s %s came without a valid %s", req.Method, req.URL, fieldID)
		return nil
	}
	r, n, known := u.arrived(id)
	if !known {
		return nil
	}
	x := &exchange{upstream: u, Conn: c, req: req, r: r, n: n, script: newScript(u.seed, id, n), rand: source(u.seed, id, 99)}
	x.checkHeaders()
	x.checkRetry()
	return x
}

// checkHeaders compares the request headers with what the client sent.
func (x *exchange) checkHeaders() {
	p, q := x.r.plan, x.req
	length := p.body.size
	if p.body.chunked {
		length = -1
	}
	for _, f := range []struct {
		what      string
		got, want any
	}{
		{"method", q.Method, p.method}, {"target", q.RequestURI, p.path()}, {"Host", q.Host, clientsHost},
		{fieldTwice, strings.Join(q.Header[fieldTwice], "|"), "a|b"}, {"chunked", len(q.TransferEncoding) > 0, p.body.chunked},
		{"length", q.ContentLength, length}, {"X-Forwarded-For set", q.Header.Get("X-Forwarded-For") != "", true},
	} {
		if f.got != f.want {
			x.violation("request headers changed", "request %d: %s is %v, not %v", p.id, f.what, f.got, f.want)
		}
	}
	if q.Header.Get("X-Hop") != "" {
		x.violation("hop-by-hop field", "request %d: X-Hop came to the upstream", p.id)
	}
	number := q.Header.Get("X-Retryproxy-Attempt")
	if n, err := strconv.Atoi(number); err != nil || n < 1 || !x.r.number(x.n, n) {
		x.violation("request headers changed", "request %d: X-Retryproxy-Attempt is %q, not a number that no other attempt had", p.id, number)
	}
}

// checkRetry checks that what may not be retried comes again only after a 429, and that nothing comes
// more often than the settings allow.
func (x *exchange) checkRetry() {
	p := x.r.plan
	limit := mostRetries + 2 // the first attempt, and one free retry
	if !p.mayRetry() && !x.r.rejectedBefore(x.n) {
		limit = 1
	}
	if x.n >= limit {
		x.violation("sent too often", "request %d (%s, retriable %v, the client %s) came to the upstream %d times, at most %d allowed",
			p.id, p.method, p.mayRetry(), p.behavior, x.n+1, limit)
	}
}

// mostRead bounds the time for one request's body, so that a proxy that sends neither bytes nor an
// end is found.
const mostRead = 20 * time.Second

// readBody reads the request's body and checks it. It reports whether the connection is still whole.
func (x *exchange) readBody() bool {
	_ = x.SetReadDeadline(time.Now().Add(mostRead))
	defer func() { _ = x.SetReadDeadline(time.Time{}) }()
	p := x.r.plan
	wrong, n, cut := p.body.read(x.req.Body)
	responded := x.r.snapshot()[x.n].early
	switch {
	case wrong != "":
		x.violation("request body changed", "request %d, attempt %d: %s", p.id, x.n, wrong)
	case cut == nil && p.behavior == cutsUpload:
		x.violation("cut upload looks whole", "request %d, attempt %d: %d bytes", p.id, x.n, n)
	case cut == nil:
		if got := x.req.Trailer.Get(fieldSum); got != p.body.sum() {
			x.violation("request trailer changed", "request %d: %q, not %q", p.id, got, p.body.sum())
		}
	case !responded && p.behavior == behaves && time.Since(x.r.opened) < attemptTimeout: // later, the proxy may have given up
		x.violation("upload cut", "request %d, attempt %d: %d of %d bytes: %v", p.id, x.n, n, p.body.size, cut)
	}
	return cut == nil
}
