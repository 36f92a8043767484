package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
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
	rig.Server
	ledger *ledger
	addr   string
	heads  atomic.Uint64 // requests that came

	ctx context.Context // ends with the run
	end func()
}

// startUpstream starts it. Now and then it stops listening for a moment, unless steady.
func startUpstream(l *ledger, steady bool) (*upstream, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &upstream{ledger: l, addr: ln.Addr().String()}
	ctx, cancel := context.WithCancel(context.Background())
	u.ctx, u.Take = ctx, u.serve
	ended := make(chan struct{})
	go func() { defer close(ended); u.listen(ln, steady) }()
	u.end = func() { // and waits for all connections
		cancel()
		<-ended
		u.Each(func(c net.Conn) { _ = c.Close() })
		u.Wait(time.Minute)
	}
	return u, nil
}

// Times of an upstream that stops listening now and then.
const (
	listensFor = 5 * time.Second
	absentFor  = 150 * time.Millisecond
)

func (u *upstream) listen(ln net.Listener, steady bool) {
	for {
		phase, cancel := context.WithTimeout(u.ctx, listensFor)
		if steady {
			phase = u.ctx
		}
		stop := context.AfterFunc(phase, func() { _ = ln.Close() })
		u.Accept(ln)
		stop()
		cancel()
		if !rig.Sleep(u.ctx, absentFor) {
			return
		}
		var err error
		if ln, err = net.Listen("tcp", u.addr); err != nil {
			u.ledger.violation("upstream", "listen again: %v", err)
			return
		}
	}
}

func (u *upstream) serve(c net.Conn) {
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

// serveRequest reports whether the connection can serve another request.
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
	x := &exchange{u: u, c: c, req: req, e: e, n: n, act: newAct(u.ledger.seed, id, n), r: source(u.ledger.seed, id, 99)}
	x.checkHead()
	return x.perform()
}

// checkHead compares the head with what the client sent.
func (x *exchange) checkHead() {
	p, q := x.e.plan, x.req
	if q.Header.Get("X-Hop") != "" {
		x.u.ledger.violation("hop-by-hop field", "request %d: X-Hop came to the upstream", p.id)
	}
	length := p.body.size
	if p.chunked {
		length = -1
	}
	for _, f := range []struct {
		what      string
		got, want any
	}{
		{"method", q.Method, p.method}, {"target", q.RequestURI, p.path()}, {"Host", q.Host, clientsHost},
		{fieldTwice, strings.Join(q.Header[fieldTwice], "|"), "a|b"}, {"chunked", len(q.TransferEncoding) > 0, p.chunked},
		{"length", q.ContentLength, length}, {"X-Forwarded-For set", q.Header.Get("X-Forwarded-For") != "", true},
	} {
		if f.got != f.want {
			x.u.ledger.violation("request headers changed", "request %d: %s is %v, not %v", p.id, f.what, f.got, f.want)
		}
	}
	if n, err := strconv.Atoi(q.Header.Get("X-Retryproxy-Attempt")); err != nil || n < 1 || !x.e.number(x.n, n) {
		x.u.ledger.violation("request headers changed", "request %d: X-Retryproxy-Attempt is %q, not a number that no other attempt had", p.id, q.Header.Get("X-Retryproxy-Attempt"))
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

// readBody reads the request's body and checks it. It reports whether the
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

// stallTime is longer than the proxy's request timeout.
const stallTime = 6 * time.Second

// mostRead bounds the time for one request's body, so that a proxy that sends
// neither bytes nor an end is found.
const mostRead = 20 * time.Second

// perform does what the act says. It reports whether the connection can serve
// another request.
func (x *exchange) perform() bool {
	if x.act.kind == resetsEarly {
		return x.reset()
	}
	if x.act.early && x.act.has() && x.req.Body != http.NoBody {
		return x.performEarly()
	}
	x.c.SetReadDeadline(time.Now().Add(mostRead))
	if x.req.Header.Get("Expect") != "" {
		io.WriteString(x.c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	if !x.readBody() {
		return false
	}
	x.c.SetReadDeadline(time.Time{})
	if x.act.delay > 0 {
		x.sleep(x.act.delay)
	}
	return x.answer()
}

// performEarly answers first and reads the body then. The proxy may end the
// connection meanwhile.
func (x *exchange) performEarly() bool {
	x.e.note(x.n, func(a *attempt) { a.early = true })
	if !x.answer() {
		return false // unread bytes make this a reset, which may take the response with it
	}
	x.c.SetReadDeadline(time.Now().Add(mostRead))
	defer x.c.SetReadDeadline(time.Time{})
	again := x.readBody()
	x.e.note(x.n, func(a *attempt) { a.whole = again })
	return again
}

func (x *exchange) answer() bool {
	switch x.act.kind {
	case resets:
		return x.reset()
	case stalls:
		x.sleep(stallTime)
		return false
	case malforms:
		io.WriteString(x.c, malformedHeads[x.act.malformed])
		return false
	case cutsHead:
		head := x.head()
		x.c.Write(head[:1+x.r.IntN(len(head)-2)])
		if one(x.r, 2) {
			return x.reset()
		}
		return false
	case cuts:
		x.writeCut()
		return false
	}
	return x.writeWhole()
}

// reset ends the connection with a reset.
func (x *exchange) reset() bool { rig.Reset(x.c); return false }

// sleep ends early with the run.
func (x *exchange) sleep(d time.Duration) { rig.Sleep(x.u.ctx, d) }

// head is the response headers, with the 1xx heads before it.
func (x *exchange) head() []byte {
	a := &x.act
	var b bytes.Buffer
	for _, status := range a.interim {
		fmt.Fprintf(&b, "HTTP/1.1 %d Soak\r\nLink: </style>; rel=preload\r\nConnection: x-hop\r\nX-Hop: 1\r\n\r\n", status)
	}
	version := 1
	if a.framing == byHTTP10 {
		version = 0
	}
	fmt.Fprintf(&b, "HTTP/1.%d %d Soak\r\n%s: a\r\n%s: %d\r\n%s: b\r\n", version, a.status, fieldTwice, fieldAttempt, x.n, fieldTwice)
	fmt.Fprintf(&b, "Date: %s\r\n", time.Now().UTC().Format(http.TimeFormat))
	switch {
	case a.retry == "date":
		fmt.Fprintf(&b, "Retry-After: %s\r\n", time.Now().Add(time.Second).UTC().Format(http.TimeFormat))
	case a.retry != "":
		fmt.Fprintf(&b, "Retry-After: %s\r\n", a.retry)
	}
	switch a.framing {
	case byLength, byHTTP10:
		fmt.Fprintf(&b, "Content-Length: %d\r\n", a.body.size)
	case byChunks:
		b.WriteString("Transfer-Encoding: chunked\r\n")
		if a.trailer {
			fmt.Fprintf(&b, "Trailer: %s\r\n", fieldSum)
		}
	}
	if a.after == closesSaid || a.framing == byClose && one(x.r, 2) {
		b.WriteString("Connection: close\r\n")
	}
	b.WriteString("\r\n")
	return b.Bytes()
}

// bodyless: no body follows the head, whatever it says.
func (x *exchange) bodyless() bool { return x.req.Method == "HEAD" || x.act.framing == noContent }

// writeWhole writes the whole response.
func (x *exchange) writeWhole() bool {
	x.e.note(x.n, func(a *attempt) { a.whole = !a.early }) // before the client can have it
	if x.write(x.act.body.size, true) != nil {
		x.e.note(x.n, func(a *attempt) { a.whole = false })
		return false
	}
	if x.act.framing == byClose && !x.bodyless() || x.act.framing == byHTTP10 {
		return false
	}
	return x.afterwards()
}

// writeCut ends the response somewhere in its body, or, when chunked, just
// before its last chunk. A HEAD's answer has none, so it is whole.
func (x *exchange) writeCut() {
	if x.bodyless() {
		x.writeWhole()
		return
	}
	size := x.act.body.size
	if x.act.framing == byChunks {
		size++
	}
	x.write(int64(x.act.cutAt*float64(size)), false)
	if x.act.asReset {
		x.reset()
	}
}

// poison is a response to no request. It comes in one small write with the
// last byte of the response, so that it is there before the proxy can use the
// connection again: a little later, nothing could tell it from a response.
const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"

// write sends the head and the first upTo bytes of the body; with end also
// what ends it, and whatever comes after that unasked.
func (x *exchange) write(upTo int64, end bool) error {
	a, step := &x.act, 32<<10
	var all bytes.Buffer // of a response that is followed by poison
	var out io.Writer = x.c
	if end && a.after == saysMore {
		out = &all
	}
	if a.trickles {
		out, step = slowWriter{out, 10 * time.Millisecond}, int(a.body.size/8)+1
	}
	_, err := out.Write(x.head())
	if err == nil && !x.bodyless() {
		err = a.body.write(out, upTo, step, a.framing == byChunks, a.trailer, end)
	}
	if err != nil || all.Len() == 0 {
		return err
	}
	last := all.Len() - 1
	if _, err := x.c.Write(all.Bytes()[:last]); err != nil {
		return err
	}
	x.sleep(2 * time.Millisecond) // until what is before it has left, so that the rest goes as one segment
	_, err = x.c.Write(append(all.Bytes()[last:], poison...))
	return err
}

// afterwards does what the act says about the connection after the response.
func (x *exchange) afterwards() bool {
	switch x.act.after {
	case closesSaid, closesAtOnce, saysMore:
		return false
	case closesSilently:
		x.sleep(time.Duration(x.r.IntN(20)) * time.Millisecond)
		return false
	case says408:
		x.sleep(time.Duration(x.r.IntN(3)) * time.Millisecond)
		io.WriteString(x.c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return false
	}
	return true
}
