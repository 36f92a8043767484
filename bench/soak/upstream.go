package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Headers with which clients and upstream speak of a request.
const (
	fieldID      = "X-Soak-Id"
	fieldAttempt = "X-Soak-Attempt" // of a response: the attempt it answers, from 0
	fieldSum     = "X-Soak-Sum"     // a trailer, from content.sum
	fieldTwice   = "X-Soak-Twice"   // comes twice, "a" then "b"
)

// upstream is the server that fails in every way. It reads requests with
// net/http, so that what the proxy sends is judged by somebody else's parser,
// and writes responses byte by byte.
type upstream struct {
	ledger *ledger
	seed   uint64
	addr   string

	heads atomic.Uint64 // requests that came

	ending chan struct{}  // closed by closeAll
	wg     sync.WaitGroup // of conns

	mu    sync.Mutex // guards what follows
	conns map[net.Conn]bool
	ended bool
}

func newUpstream(l *ledger) (*upstream, net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	return &upstream{ledger: l, seed: l.seed, addr: ln.Addr().String(),
		ending: make(chan struct{}), conns: make(map[net.Conn]bool)}, ln, nil
}

// Times of an upstream that stops listening now and then.
const (
	listensFor = 5 * time.Second
	absentFor  = 150 * time.Millisecond
)

// serve accepts until the context ends, then closes all connections and waits
// for them. Now and then it stops listening for a moment, unless steady.
func (u *upstream) serve(ctx context.Context, ln net.Listener, steady bool) error {
	defer u.closeAll()
	for ctx.Err() == nil {
		phase, cancel := context.WithTimeout(ctx, listensFor)
		if steady {
			phase = ctx
		}
		u.accept(phase, ln)
		cancel()
		if ctx.Err() != nil {
			return nil
		}
		pause(ctx, absentFor)
		var err error
		if ln, err = net.Listen("tcp", u.addr); err != nil {
			return fmt.Errorf("listen again: %w", err)
		}
	}
	return ln.Close()
}

// accept serves connections until the context ends, then closes the listener.
func (u *upstream) accept(ctx context.Context, ln net.Listener) {
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		if !u.add(c) {
			c.Close()
			continue
		}
		go u.serveConn(c)
	}
}

func (u *upstream) add(c net.Conn) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended {
		return false
	}
	u.conns[c] = true
	u.wg.Add(1)
	return true
}

func (u *upstream) closeAll() {
	u.mu.Lock()
	u.ended = true
	close(u.ending)
	for c := range u.conns {
		c.Close()
	}
	u.mu.Unlock()
	u.wg.Wait()
}

func (u *upstream) serveConn(c net.Conn) {
	defer u.wg.Done()
	defer func() {
		c.Close()
		u.mu.Lock()
		delete(u.conns, c)
		u.mu.Unlock()
	}()
	br := bufio.NewReaderSize(c, 16<<10)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			u.badHead(err)
			return
		}
		if !u.serveRequest(c, req) {
			return
		}
	}
}

// badHead: a head that the proxy sent does not parse. That a connection ends
// instead of one is right.
func (u *upstream) badHead(err error) {
	var op *net.OpError
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &op) {
		return
	}
	u.ledger.violation("malformed request", "the proxy sent a request that net/http refuses: %v", err)
}

// exchange is one attempt at the upstream.
type exchange struct {
	u   *upstream
	c   net.Conn
	req *http.Request
	e   *entry
	n   int // number of the attempt
	act act
	r   *rand.Rand // for what need not be known to the client
}

// serveRequest says whether the connection can serve another request.
func (u *upstream) serveRequest(c net.Conn, req *http.Request) bool {
	u.heads.Add(1)
	id, err := strconv.ParseUint(req.Header.Get(fieldID), 10, 64)
	if err != nil {
		u.ledger.violation("request without name", "%s %s came without a valid %s", req.Method, req.URL, fieldID)
		return false
	}
	e, n, known := u.ledger.arrived(id)
	if !known {
		return false
	}
	x := &exchange{u: u, c: c, req: req, e: e, n: n, act: newAct(u.seed, id, n), r: source(u.seed, id, 99)}
	x.checkHead()
	return x.perform()
}

// checkHead compares the head with what the client sent.
func (x *exchange) checkHead() {
	p, q := x.e.plan, x.req
	bad := func(what string, got, want any) {
		x.u.ledger.violation("request headers changed", "request %d: %s is %v, not %v", p.id, what, got, want)
	}
	if q.Method != p.method {
		bad("method", q.Method, p.method)
	}
	if q.RequestURI != p.path() {
		bad("target", q.RequestURI, p.path())
	}
	if q.Host != clientsHost {
		bad("Host", q.Host, clientsHost)
	}
	if got := q.Header[fieldTwice]; len(got) != 2 || got[0] != "a" || got[1] != "b" {
		bad(fieldTwice, got, "a, b")
	}
	if got := len(q.TransferEncoding) > 0; got != p.chunked {
		bad("chunked", got, p.chunked)
	}
	if !p.chunked && q.ContentLength != p.body.size {
		bad("length", q.ContentLength, p.body.size)
	}
	if q.Header.Get("X-Hop") != "" {
		x.u.ledger.violation("hop-by-hop field", "request %d: X-Hop came to the upstream", p.id)
	}
	if q.Header.Get("X-Forwarded-For") == "" {
		bad("X-Forwarded-For", "empty", "the client's address")
	}
	if n, err := strconv.Atoi(q.Header.Get("X-Retryproxy-Attempt")); err != nil || n < 1 || !x.e.number(x.n, n) {
		bad("X-Retryproxy-Attempt", q.Header.Get("X-Retryproxy-Attempt"), "a number that no other attempt had")
	}
	x.checkRepeat()
}

// checkRepeat: what may not be retried comes again only after a 429, and nothing
// comes more often than the settings allow.
func (x *exchange) checkRepeat() {
	p := x.e.plan
	limit := mostRetries + 2 // the first attempt, and one free repeat
	if !p.mayRepeat() && !x.e.rejectedBefore(x.n) {
		limit = 1
	}
	if p.conduct == breaksRules {
		limit = 0
	}
	if x.n >= limit {
		x.u.ledger.violation("sent too often", "request %d (%s, retriable %v, conduct %d) came to the upstream %d times, at most %d allowed",
			p.id, p.method, p.mayRepeat(), p.conduct, x.n+1, limit)
	}
}

// readBody reads the request's body and checks it. It says whether the
// connection is still whole.
func (x *exchange) readBody() bool {
	p := x.e.plan
	wrong, n, cut := p.body.read(x.req.Body)
	answered := false
	x.e.note(x.n, func(a *attempt) { answered = a.early })
	switch {
	case wrong != "":
		x.u.ledger.violation("request body changed", "request %d, attempt %d: %s", p.id, x.n, wrong)
	case cut == nil && p.conduct == cutsUpload:
		x.u.ledger.violation("cut upload looks whole", "request %d, attempt %d: %d bytes", p.id, x.n, n)
	case cut == nil:
		x.checkTrailer()
	case !answered && p.conduct == behaves && time.Since(x.e.opened) < attemptTimeout: // later, the proxy may have given up
		x.u.ledger.violation("upload cut", "request %d, attempt %d: %d of %d bytes: %v", p.id, x.n, n, p.body.size, cut)
	}
	return cut == nil
}

func (x *exchange) checkTrailer() {
	p := x.e.plan
	want := ""
	if p.trailer {
		want = p.body.sum()
	}
	if got := x.req.Trailer.Get(fieldSum); got != want {
		x.u.ledger.violation("request trailer changed", "request %d: %q, not %q", p.id, got, want)
	}
}

// pause waits; it ends early with the context.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
