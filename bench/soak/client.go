package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// clientsHost is the Host of every request. It is not the proxy's own name, so
// the proxy has to keep it.
const clientsHost = "soak.test"

// mostPatience is how long a client waits for the head of its response, and again
// for each piece of the body. Longer than all timeouts of the proxy together.
const mostPatience = 15 * time.Second

// team is what all clients share.
type team struct {
	ledger *ledger
	seed   uint64
	proxy  string // address
	judge  *judge

	patience time.Duration // of each client, for a head or a piece of a body

	nextID atomic.Uint64
	sent   atomic.Uint64 // requests that the proxy has taken for sure
	up     atomic.Int64  // body bytes sent
	down   atomic.Int64  // body bytes received

	breakers atomic.Uint64 // of the requests sent, those that broke a rule
}

// client sends one request after the other, over a connection that it keeps
// as long as the proxy lets it.
type client struct {
	t    *team
	from net.IP // source address, so that ports do not run out
	conn net.Conn
	br   *bufio.Reader
}

// run sends requests until the context ends; the one in flight is ended.
func (c *client) run(ctx context.Context) {
	defer c.hangUp(false)
	for ctx.Err() == nil {
		p := c.t.plan()
		rig.Sleep(ctx, p.think)
		if p.pipelines() && p.id%11 == 0 {
			c.pipeline(p)
			continue
		}
		c.exchange(p)
	}
}

func (t *team) plan() *plan { return newPlan(t.seed, t.nextID.Add(1)) }

// dial makes the connection when there is none.
func (c *client) dial() bool {
	if c.conn != nil {
		return true
	}
	d := net.Dialer{Timeout: c.t.patience, LocalAddr: &net.TCPAddr{IP: c.from}}
	conn, err := d.Dial("tcp", c.t.proxy)
	if err != nil {
		c.t.ledger.violation("no connection", "dial the proxy: %v", err)
		time.Sleep(100 * time.Millisecond)
		return false
	}
	c.conn = conn
	c.br = bufio.NewReaderSize(&rig.Patient{Conn: conn, Quiet: c.t.patience}, 16<<10)
	return true
}

// hangUp ends the connection, by a reset if asked for.
func (c *client) hangUp(reset bool) {
	if c.conn == nil {
		return
	}
	if reset {
		rig.Reset(c.conn)
	}
	c.conn.Close()
	c.conn = nil
}

// exchange sends one request, reads its response and has it judged.
func (c *client) exchange(p *plan) {
	if !c.dial() {
		return
	}
	e := c.t.ledger.open(p)
	w := c.startWriting(p)
	left := p.conduct == leaves && waitSeen(e, p, c.t.patience/3)
	end := ending{}
	if !left {
		got := c.read(e, w)
		left = got.left
		c.t.judge.ruling(e, got)
		end = got.ending()
	}
	if left || !p.lasts() || !c.wrote(w) {
		c.hangUp(left && p.id%2 == 0)
	}
	w.wait()
	c.t.sent.Add(1)
	if p.conduct == breaksRules {
		c.t.breakers.Add(1)
	}
	end.left = left || p.conduct == cutsUpload
	c.t.ledger.close(e, end)
}

// lasts: the connection may serve another request after this one.
func (p *plan) lasts() bool {
	return p.conduct == behaves || p.conduct == readsSlowly || p.conduct == writesSlowly
}

// wrote reports whether the request has been sent whole, as it must have been for
// another to follow. A response that came before that leaves it a moment.
func (c *client) wrote(w *writing) bool {
	return c.conn == nil || w.over(100*time.Millisecond) && w.err == nil
}

// waitSeen waits until the request is at the upstream, and a little longer.
// False: it does not get there, so there will be a response.
func waitSeen(e *entry, p *plan, most time.Duration) bool {
	select {
	case <-e.seen:
		time.Sleep(time.Duration(p.when * 40 * float64(time.Millisecond)))
		return true
	case <-time.After(most):
		return false
	}
}

// mostPipelined bounds the requests sent in one go.
const mostPipelined = 4

// pipeline sends p and a few requests after it at once and reads the responses
// in order. A request behind a response that ends the connection was not taken.
func (c *client) pipeline(p *plan) {
	if !c.dial() {
		return
	}
	batch := []*plan{p}
	for len(batch) < mostPipelined {
		next := c.t.plan()
		if !next.pipelines() {
			break // its number is skipped
		}
		batch = append(batch, next)
	}
	entries := make([]*entry, len(batch))
	w := &writing{t: c.t}
	for i, p := range batch {
		entries[i] = c.t.ledger.open(p)
		w.render(p)
	}
	w.begin(c.conn)
	for _, e := range entries {
		end := ending{reply: "no response, as the connection ended before its turn"}
		if c.conn != nil {
			got := c.read(e, w)
			c.t.judge.ruling(e, got)
			c.t.sent.Add(1)
			end = got.ending()
		}
		c.t.ledger.close(e, end)
	}
	if !c.wrote(w) {
		c.hangUp(false)
	}
	w.wait()
}

// reply is what a client got for its request.
type reply struct {
	resp    *http.Response // nil: not even a head
	interim []int          // 1xx statuses before it, 100 left out
	attempt int            // the upstream's attempt that it answers; -1: none, the proxy's own
	text    string         // the body when it is the proxy's own
	wrong   string         // how the body differs from what the upstream sent
	n       int64          // bytes of body
	err     error          // what ended it early
	left    bool           // the client left in the middle
	begun   time.Time      // of the request
	ended   time.Time
}

// ending is how the request ended that got this reply.
func (r *reply) ending() ending {
	end := ending{took: r.ended.Sub(r.begun), reply: fmt.Sprintf("no response (%v)", r.err)}
	if r.resp != nil {
		end.reply = fmt.Sprintf("status %d of attempt %d, reason %q", r.resp.StatusCode, r.attempt, r.resp.Header.Get("X-Retryproxy-Reason"))
	}
	return end
}

// read reads the answer to e's request and hangs up when it ends the connection.
func (c *client) read(e *entry, w *writing) *reply {
	got := &reply{attempt: -1, begun: w.begun}
	defer func() { got.ended = time.Now() }()
	if got.err = c.readHead(e, w, got); got.err != nil {
		c.hangUp(false)
		return got
	}
	if text := got.resp.Header.Get(fieldAttempt); text != "" {
		got.attempt, _ = strconv.Atoi(text)
	}
	c.readBody(e.plan, w, got)
	c.t.down.Add(got.n)
	if !got.left && (got.err != nil || got.resp.Close || e.plan.close) {
		c.hangUp(false)
	}
	return got
}

// readHead reads heads up to the final one.
func (c *client) readHead(e *entry, w *writing, got *reply) error {
	for {
		resp, err := http.ReadResponse(c.br, &http.Request{Method: e.plan.method})
		if err != nil {
			return err
		}
		if resp.StatusCode >= 200 {
			got.resp = resp
			return nil
		}
		c.interim(e.plan, w, got, resp)
	}
}

// interim takes a 1xx.
func (c *client) interim(p *plan, w *writing, got *reply, resp *http.Response) {
	if p.minor == 0 {
		c.t.ledger.violation("1xx to HTTP/1.0", "request %d got %d", p.id, resp.StatusCode)
	}
	if resp.Header.Get("X-Hop") != "" {
		c.t.ledger.violation("hop-by-hop field", "request %d: X-Hop on a %d", p.id, resp.StatusCode)
	}
	if resp.StatusCode != http.StatusContinue {
		got.interim = append(got.interim, resp.StatusCode)
		return
	}
	if !p.expect {
		c.t.ledger.violation("unasked 100", "request %d", p.id)
		return
	}
	select {
	case w.goAhead <- struct{}{}:
	default:
		c.t.ledger.violation("second 100", "request %d", p.id)
	}
}

// readBody reads the body: the proxy's own as a text, the upstream's against
// what it must be.
func (c *client) readBody(p *plan, w *writing, got *reply) {
	defer got.resp.Body.Close()
	var body io.Reader = got.resp.Body
	if p.conduct == readsSlowly {
		body = &slowReader{Reader: body}
	}
	if got.attempt < 0 {
		var text []byte
		text, got.err = io.ReadAll(io.LimitReader(body, 64<<10))
		got.text = string(text)
		return
	}
	want := newAct(c.t.seed, p.id, got.attempt).body
	if p.conduct == leavesMidway && want.size > 0 {
		_, _ = io.CopyN(io.Discard, body, int64(p.when*float64(want.size)))
		got.left = true
		return
	}
	if p.method == http.MethodHead {
		want.size = 0
	}
	got.wrong, got.n, got.err = want.read(body)
	if strings.HasSuffix(got.wrong, looksWhole) && untilClose(got.resp) && w.wasReset() {
		got.wrong, got.err = "", w.err
	}
}

// untilClose: only the end of the connection ends the body.
func untilClose(r *http.Response) bool { return r.ContentLength < 0 && len(r.TransferEncoding) == 0 }

// slowReader takes its time for the first reads.
type slowReader struct {
	io.Reader
	n int
}

func (r *slowReader) Read(p []byte) (int, error) {
	if r.n++; r.n < 8 {
		time.Sleep(20 * time.Millisecond)
		p = p[:min(len(p), 8<<10)]
	}
	return r.Reader.Read(p)
}

// writing is a request on its way to the proxy, in a goroutine of its own: the
// answer may come before the request is whole.
type writing struct {
	t       *team
	bytes   bytes.Buffer // what is sent at once
	rest    func(io.Writer) error
	goAhead chan struct{} // the proxy said 100 Continue
	begun   time.Time
	done    chan struct{}
	err     error // of writing, nil if all was written; read after done
}

// startWriting begins to send a request.
func (c *client) startWriting(p *plan) *writing {
	w := &writing{t: c.t, goAhead: make(chan struct{}, 1)}
	w.render(p)
	w.begin(c.conn)
	return w
}

func (w *writing) begin(conn net.Conn) {
	w.begun, w.done = time.Now(), make(chan struct{})
	go func() {
		defer close(w.done)
		conn.SetWriteDeadline(time.Now().Add(2 * w.t.patience))
		_, w.err = conn.Write(w.bytes.Bytes())
		if w.err == nil && w.rest != nil {
			w.err = w.rest(conn)
		}
	}()
}

// over waits for the goroutine, which a closed connection ends, and reports whether it has ended.
func (w *writing) over(limit time.Duration) bool {
	select {
	case <-w.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// wait waits longer than any request should take.
func (w *writing) wait() {
	if !w.over(3 * w.t.patience) {
		w.t.ledger.violation("stuck write", "a request could not be sent in %v", 3*w.t.patience)
	}
}

// wasReset reports whether the request met a reset. The kernel tells of one only
// once: when the writer is told, the reader sees a mere end of the connection.
func (w *writing) wasReset() bool { return w.over(time.Second) && errors.Is(w.err, syscall.ECONNRESET) }

// small is a body size up to which a request goes out in one piece.
const small = 4096

// render prepares what is sent of the request: the head, and the body with it
// when it is small and the client just behaves.
func (w *writing) render(p *plan) {
	if p.conduct == breaksRules {
		w.bytes.WriteString(rules[p.broken].text(p))
		return
	}
	w.head(p)
	if p.body.size <= small && (p.conduct == behaves || p.conduct == readsSlowly) && !p.expect {
		w.body(&w.bytes, p, p.body.size, small)
		return
	}
	if p.mayHaveBody() {
		w.rest = func(conn io.Writer) error { return w.sendBody(conn, p) }
	}
}

func (w *writing) head(p *plan) {
	b := &w.bytes
	fmt.Fprintf(b, "%s %s HTTP/1.%d\r\nHost: %s\r\n%s: a\r\n", p.method, p.path(), p.minor, clientsHost, fieldTwice)
	fmt.Fprintf(b, "%s: %d\r\nUser-Agent: soak\r\nAccept: */*\r\n%s: b\r\n", fieldID, p.id, fieldTwice)
	if p.keyed {
		fmt.Fprintf(b, "Idempotency-Key: soak-%d\r\n", p.id)
	}
	switch {
	case p.chunked:
		b.WriteString("Transfer-Encoding: chunked\r\n")
	case p.mayHaveBody():
		fmt.Fprintf(b, "Content-Length: %d\r\n", p.body.size)
	}
	if p.trailer {
		fmt.Fprintf(b, "Trailer: %s\r\n", fieldSum)
	}
	if p.expect {
		b.WriteString("Expect: 100-continue\r\n")
	}
	b.WriteString(p.connection())
	b.WriteString("\r\n")
}

// connection is the Connection field, with TE: trailers and a field that must
// not be forwarded.
func (p *plan) connection() string {
	switch {
	case p.minor == 0 && p.close:
		return ""
	case p.minor == 0:
		return "Connection: keep-alive\r\n"
	case p.close:
		return "Connection: close, TE, X-Hop\r\nTE: trailers\r\nX-Hop: 1\r\n"
	}
	return "Connection: TE, X-Hop\r\nTE: trailers\r\nX-Hop: 1\r\n"
}

// sendBody sends the body as the plan says.
func (w *writing) sendBody(conn io.Writer, p *plan) error {
	if p.expect {
		select {
		case <-w.goAhead:
		case <-time.After(200 * time.Millisecond): // send it anyway, as RFC 9110 section 10.1.1 says
		}
	}
	if p.conduct == cutsUpload {
		if err := w.body(conn, p, int64(p.when*float64(p.body.size)), 16<<10); err != nil {
			return err
		}
		return conn.(interface{ CloseWrite() error }).CloseWrite()
	}
	step := 48 << 10
	if p.conduct == writesSlowly {
		step = int(p.body.size/6) + 1
		conn = slowWriter{conn, 40 * time.Millisecond}
	}
	return w.body(conn, p, p.body.size, step)
}

// body sends the first upTo bytes of the body, and its end if they are all.
func (w *writing) body(to io.Writer, p *plan, upTo int64, step int) error {
	w.t.up.Add(upTo)
	return p.body.write(to, upTo, step, p.chunked, p.trailer, upTo == p.body.size)
}
