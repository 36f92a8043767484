package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

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
		c.conn.SetReadDeadline(time.Now().Add(c.t.patience))
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
	var body io.Reader = &patientReader{c: c, r: got.resp.Body, slow: p.conduct == readsSlowly}
	if got.attempt < 0 {
		var text bytes.Buffer
		_, got.err = io.Copy(&text, io.LimitReader(body, 64<<10))
		got.text = text.String()
		return
	}
	want := newAct(c.t.seed, p.id, got.attempt).body
	if p.conduct == leavesMidway && want.size > 0 {
		copyUpTo(body, int64(p.when*float64(want.size)))
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

// patientReader gives every read its own time, and takes its time when slow.
type patientReader struct {
	c    *client
	r    io.Reader
	slow bool
	n    int
}

func (r *patientReader) Read(p []byte) (int, error) {
	if r.n++; r.slow && r.n < 8 {
		time.Sleep(20 * time.Millisecond)
		p = p[:min(len(p), 8<<10)]
	}
	r.c.conn.SetReadDeadline(time.Now().Add(r.c.t.patience))
	return r.r.Read(p)
}

// text is the request that breaks the rule.
func (r *rule) text(p *plan) string {
	fields := fieldID + ": " + strconv.FormatUint(p.id, 10) + "\r\n"
	if !bytes.Contains([]byte(r.head), []byte("\r\n")) {
		fields = fields[:len(fields)-2] + "\n"
	}
	return string(bytes.ReplaceAll([]byte(r.head), []byte("@"), []byte(fields)))
}

// refuses says whether the rule may be answered with this status.
func (r *rule) refuses(status int) bool { return slices.Contains(r.status, status) }
