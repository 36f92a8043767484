package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// mostPatience is how long a client waits for response headers, and for each piece of a body. It is
// longer than all timeouts of the proxy together.
const mostPatience = 15 * time.Second

// client sends one request after another over a persistent connection.
type client struct {
	*soak
	proxy    string        // address
	from     net.IP        // source address, so that ports do not run out
	patience time.Duration // for response headers or a piece of a body

	conn net.Conn // nil: none
	in   *bufio.Reader
}

// mostPipelined bounds the requests that are pipelined.
const mostPipelined = 4

// run sends requests until ctx ends. It then closes the connection.
func (c *client) run(ctx context.Context) {
	defer c.disconnect(false)
	for ctx.Err() == nil {
		batch := []*plan{c.plan()}
		rig.Sleep(ctx, batch[0].think)
		if batch[0].pipelines() && batch[0].id%11 == 0 {
			for len(batch) < mostPipelined {
				next := c.plan()
				if !next.pipelines() {
					break // its number is skipped
				}
				batch = append(batch, next)
			}
		}
		c.exchange(batch)
	}
}

// dial connects unless there is a connection. It reports whether there is one.
func (c *client) dial() bool {
	if c.conn != nil {
		return true
	}
	d := net.Dialer{Timeout: c.patience, LocalAddr: &net.TCPAddr{IP: c.from}}
	conn, err := d.Dial("tcp", c.proxy)
	if err != nil {
		c.violation("no connection", "dial the proxy: %v", err)
		time.Sleep(100 * time.Millisecond)
		return false
	}
	c.conn = conn
	c.in = bufio.NewReaderSize(&rig.Patient{Conn: conn, Quiet: c.patience}, 16<<10)
	return true
}

// disconnect closes the connection, with a reset if wanted.
func (c *client) disconnect(reset bool) {
	if c.conn == nil {
		return
	}
	if reset {
		rig.Reset(c.conn)
	}
	_ = c.conn.Close()
	c.conn = nil
}

// exchange sends one request or several pipelined ones, and judges the responses. If a response ends the
// connection, the requests behind it were not accepted.
func (c *client) exchange(batch []*plan) {
	if !c.dial() {
		return
	}
	w := &upload{goAhead: make(chan struct{}, 1), patience: c.patience}
	records := make([]*record, len(batch))
	for i, p := range batch {
		records[i] = c.open(p)
		w.render(p)
		c.Count(sentBytes, p.body.size)
	}
	w.begin(c.conn)
	first := batch[0]
	end := ending{}
	for _, r := range records {
		end = ending{reply: "no response, as the connection ended before its turn"}
		if c.conn != nil {
			end = c.receive(r, w)
		}
		c.close(r, end)
	}
	// No request can follow one that is not whole. After an early response, the rest gets a moment.
	if end.left || !first.lasts() || c.conn != nil && (!w.over(100*time.Millisecond) || w.err != nil) {
		c.disconnect(end.left && first.id%2 == 0)
	}
	if limit := 3 * c.patience; !w.over(limit) {
		c.violation("stuck write", "a request could not be sent in %v", limit)
	}
}

// receive reads the response to a request and judges it, unless the client leaves first.
func (c *client) receive(r *record, w *upload) ending {
	c.Count(sent, 1)
	if r.plan.behavior == leaves && c.waitSeen(r) {
		return ending{left: true}
	}
	got := c.read(r.plan, w)
	c.judge(r, got)
	end := ending{took: got.took, left: got.left, reply: fmt.Sprintf("no response (%v)", got.err)}
	if got.resp != nil {
		end.reply = fmt.Sprintf("status %d of attempt %d, reason %q", got.resp.StatusCode, got.attempt, got.resp.Header.Get("X-Retryproxy-Reason"))
	}
	return end
}

// waitSeen waits until the request has reached the upstream, and a little longer. It reports whether it
// has. Otherwise the proxy responds by itself.
func (c *client) waitSeen(r *record) bool {
	select {
	case <-r.seen:
		time.Sleep(time.Duration(r.plan.when * 40 * float64(time.Millisecond)))
		return true
	case <-time.After(c.patience / 3):
		return false
	}
}

// reply is the response as a client sees it.
type reply struct {
	resp    *http.Response // nil if no headers came
	interim []int          // 1xx statuses before it, without 100
	attempt int            // the attempt that the upstream responded to; -1 for the proxy's own response
	text    string         // the body of the proxy's own response
	wrong   string         // how the body differs from what the upstream sent
	n       int64          // bytes of body
	err     error          // what ended it early
	left    bool           // the client left in the middle
	took    time.Duration
}

// read reads the response to a request. It disconnects if the response ends the connection.
func (c *client) read(p *plan, w *upload) *reply {
	got := &reply{attempt: -1}
	defer func() { got.took = time.Since(w.begun) }()
	for got.resp == nil {
		resp, err := http.ReadResponse(c.in, &http.Request{Method: p.method})
		switch {
		case err != nil:
			got.err = err
			c.disconnect(false)
			return got
		case resp.StatusCode < 200:
			c.readInterim(p, w, got, resp)
		default:
			got.resp = resp
		}
	}
	if text := got.resp.Header.Get(fieldAttempt); text != "" {
		got.attempt, _ = strconv.Atoi(text)
	}
	c.readBody(p, w, got)
	c.Count(readBytes, got.n)
	if !got.left && (got.err != nil || got.resp.Close || p.close) {
		c.disconnect(false)
	}
	return got
}

func (c *client) readInterim(p *plan, w *upload, got *reply, resp *http.Response) {
	if p.minor == 0 {
		c.violation("1xx to HTTP/1.0", "request %d got %d", p.id, resp.StatusCode)
	}
	if resp.Header.Get("X-Hop") != "" {
		c.violation("hop-by-hop field", "request %d: X-Hop on a %d", p.id, resp.StatusCode)
	}
	if resp.StatusCode != http.StatusContinue {
		got.interim = append(got.interim, resp.StatusCode)
		return
	}
	if !p.expect {
		c.violation("unasked 100", "request %d", p.id)
		return
	}
	select {
	case w.goAhead <- struct{}{}:
	default:
		c.violation("second 100", "request %d", p.id)
	}
}

// readBody reads the body. It compares one from the upstream with what was sent.
func (c *client) readBody(p *plan, w *upload, got *reply) {
	defer got.resp.Body.Close()
	var in io.Reader = got.resp.Body
	if p.behavior == readsSlowly {
		in = &slowReader{Reader: in}
	}
	if got.attempt < 0 {
		var text []byte
		text, got.err = io.ReadAll(io.LimitReader(in, 64<<10))
		got.text = string(text)
		return
	}
	want := newScript(c.seed, p.id, got.attempt).body
	if p.behavior == leavesMidway && want.size > 0 {
		_, _ = io.CopyN(io.Discard, in, int64(p.when*float64(want.size)))
		got.left = true
		return
	}
	if p.method == http.MethodHead {
		want.size = 0
	}
	got.wrong, got.n, got.err = want.read(in)
	untilClose := got.resp.ContentLength < 0 && len(got.resp.TransferEncoding) == 0
	if strings.HasSuffix(got.wrong, looksWhole) && untilClose && w.wasReset() {
		got.wrong, got.err = "", w.err
	}
}
