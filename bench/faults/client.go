//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// verdict is the result of a request for its client.
type verdict int

const (
	served  verdict = iota // the right answer, whole
	failed                 // a whole response with another status, or the request could not be sent
	cut                    // a response that ended visibly too soon
	lost                   // the request was sent, and no byte of a response came
	changed                // a response that looks whole but is wrong
	verdicts
)

// requestKind is the kind of requests that a client sends.
type requestKind struct {
	method string
	key    bool // with an Idempotency-Key
	once   bool // on a new connection for each request
	body   int  // bytes of a body, if the method has one; 0 means a few
}

// mayRetry reports whether the proxy may retry a request after it was sent (RFC 9110 section 9.2.2).
func (r requestKind) mayRetry() bool { return r.method != http.MethodPost || r.key }

// requestKinds has one entry for each client.
var requestKinds = []requestKind{{method: "GET"}, {method: "GET"}, {method: "GET"}, {method: "PUT"}, {method: "PUT"}, {method: "POST", key: true}, {method: "POST"}, {method: "POST"}}

const (
	// patience is how long a client waits for a response. The proxy's own limit is 30 s.
	patience = 40 * time.Second
	// between is the pause between the requests of a client.
	between = 10 * time.Millisecond
	// inFlightFor is how long the upstream takes for requests that are to be in flight at SIGTERM. It is less
	// than ATTEMPT_TIMEOUT.
	inFlightFor = 700 * time.Millisecond
)

// event is a request that has ended.
type event struct {
	began, ended time.Time
	mayRetry     bool
	verdict      verdict
	what         string // why it was not served
}

// clients is all clients of a proxy. It is safe for concurrent use.
type clients struct {
	network, addr string
	tls           bool
	wait          atomic.Bool
	paused        atomic.Bool // no new requests for now
	connected     atomic.Bool // new requests only by clients that keep their connection
	stopped       atomic.Bool // no more requests
	ids           atomic.Int64
	all           sync.WaitGroup

	mu     sync.Mutex // guards all below
	events []event
	open   map[string]time.Time // when the requests in flight began
}

// call starts a client of each requestKind. They end with ctx, or when they are stopped.
func (t *clients) call(ctx context.Context, some []requestKind) {
	for _, m := range some {
		c := &client{clients: t, requestKind: m}
		t.all.Go(func() {
			defer c.disconnect()
			for !t.stopped.Load() && rig.Sleep(ctx, between) {
				if !t.paused.Load() && !(m.once && t.connected.Load()) {
					c.ask()
				}
			}
		})
	}
}

// since returns the events that ended later than at.
func (t *clients) since(at time.Time) []event {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.events), func(e event) bool { return !e.ended.After(at) })
}

// client sends one request after another on a persistent connection.
type client struct {
	*clients
	requestKind
	conn net.Conn // nil: none
	in   *bufio.Reader
}

func (c *client) disconnect() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *client) ask() {
	id := fmt.Sprintf("%08d", c.ids.Add(1))
	e := event{began: time.Now(), mayRetry: c.mayRetry()}
	c.mu.Lock()
	c.open[id] = e.began
	c.mu.Unlock()
	if err := c.send(id); err != nil {
		e.verdict, e.what = failed, "not taken: "+err.Error()
	} else {
		e.verdict, e.what = c.receive(id)
	}
	if c.once || e.verdict != served && e.verdict != failed {
		c.disconnect()
	}
	e.ended = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, id)
	c.events = append(c.events, e)
}

// inFlight returns how many of the requests in flight began before at.
func (t *clients) inFlight(at time.Time) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, began := range t.open {
		if began.Before(at) {
			n++
		}
	}
	return n
}

func (c *client) send(id string) error {
	if c.conn == nil {
		conn, err := net.DialTimeout(c.network, c.addr, patience)
		if err != nil {
			return err
		}
		if c.tls {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // whose certificate it is does not matter here
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	body := ""
	if c.method != http.MethodGet {
		body = strings.Repeat(id, max(c.body/len(id), 1))
	}
	q, err := http.NewRequest(c.method, "http://faults.test/"+id, strings.NewReader(body))
	if err != nil {
		return err
	}
	q.Header = http.Header{fieldID: {id}, fieldSum: {sum([]byte(body))}}
	if c.wait.Load() {
		q.Header.Set(fieldWait, inFlightFor.String())
	}
	if c.key {
		q.Header.Set("Idempotency-Key", strconv.Quote(id))
	}
	var b bytes.Buffer
	_ = q.Write(&b)
	if _, err := c.conn.Write(b.Bytes()); err != nil {
		c.disconnect()
		return err
	}
	return nil
}

// receive reads the response and judges it.
func (c *client) receive(id string) (verdict, string) {
	for n := 1; ; n++ { // until all response headers are there
		b, err := c.in.Peek(n)
		if err != nil && len(b) == 0 {
			return lost, err.Error()
		}
		if err != nil {
			return cut, "within the head: " + err.Error()
		}
		if bytes.HasSuffix(b, []byte("\r\n\r\n")) {
			break
		}
	}
	r, err := http.ReadResponse(c.in, &http.Request{Method: c.method})
	if err != nil {
		return changed, err.Error()
	}
	body, err := io.ReadAll(r.Body)
	if r.Close {
		c.disconnect()
	}
	want := goodBody(id)
	if r.Header.Get(fieldShort) != "" {
		want = want[:len(want)/2] // as the upstream announced it
	}
	switch {
	case r.StatusCode != http.StatusOK && err == nil:
		return failed, fmt.Sprintf("%d %s %.80q", r.StatusCode, r.Header.Get("X-Retryproxy-Reason"), body)
	case r.StatusCode == http.StatusOK && !strings.HasPrefix(want, string(body)):
		return changed, fmt.Sprintf("%.100q instead of %.100q", body, want)
	case err != nil:
		return cut, err.Error()
	case string(body) != want:
		return changed, fmt.Sprintf("%.100q looks whole and is not %.100q", body, want)
	}
	return served, ""
}
