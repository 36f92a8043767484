package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// play is one run through the proxy at through, to an application at app.
func play(ctx context.Context, o *options, through, addr string) (*result, error) {
	first, err := startApp(addr, "--hold", "--before", strconv.Itoa(o.before))
	if err != nil {
		return nil, err
	}
	defer first.Kill()
	if _, err := first.open(); err != nil {
		return nil, err
	}
	if err := warmUp(through, o); err != nil {
		return nil, err
	}
	cs := &crowd{through: through, patience: o.patience}
	defer cs.leave()
	if err := cs.come(o.inHand, true); err != nil {
		return nil, err
	}
	if err := until(ctx, settled(first, o)); err != nil {
		return nil, fmt.Errorf("the application has %d of %d requests: %w", first.have.Load(), o.before+o.inHand, err)
	}
	first.Kill()
	if err := cs.come(o.later, false); err != nil {
		return nil, err
	}
	if err := sleep(ctx, o.down); err != nil {
		return nil, err
	}
	second, err := startApp(addr, "--answer", o.answer.String())
	if err != nil {
		return nil, err
	}
	defer second.Kill()
	opened, err := second.open()
	if err != nil {
		return nil, err
	}
	cs.wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return judge(cs.all, opened), nil
}

// warmUp has the application answer, so that what the proxy does at the kill is
// what it does behind an application that works.
func warmUp(through string, o *options) error {
	nc, err := net.Dial("tcp", through)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(o.patience))
	in := bufio.NewReader(nc)
	for range o.before {
		if _, err := nc.Write([]byte(kinds[0].text)); err != nil {
			return err
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
			return fmt.Errorf("before the kill, the application answers %d (%v)", res.StatusCode, err)
		}
	}
	return nil
}

// until polls for up to a minute.
func until(ctx context.Context, ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			return errors.New("it took more than a minute")
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// settled reports whether the application has what it is to have in hand. Behind
// an application that is silent the breaker may keep some back, so a second
// without another request will do.
func settled(a *app, o *options) func() bool {
	last, since := int64(-1), time.Now()
	return func() bool {
		n := a.have.Load()
		if n != last {
			last, since = n, time.Now()
		}
		return n >= int64(o.before+o.inHand) || n > int64(o.before) && time.Since(since) > time.Second
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// crowd are the clients.
type crowd struct {
	through  string
	patience time.Duration
	all      []*request
	conns    []net.Conn
	wg       sync.WaitGroup
}

// come lets n clients connect and send a request each.
func (c *crowd) come(n int, held bool) error {
	for i := range n {
		nc, err := net.Dial("tcp", c.through)
		if err != nil {
			return err
		}
		r := &request{kind: i % len(kinds), had: held}
		c.all, c.conns = append(c.all, r), append(c.conns, nc)
		_ = nc.SetDeadline(time.Now().Add(c.patience))
		c.wg.Go(func() { r.ask(nc) })
	}
	return nil
}

func (c *crowd) wait() { c.wg.Wait() }

// leave ends all connections, so that nobody waits any longer.
func (c *crowd) leave() {
	for _, nc := range c.conns {
		_ = nc.Close()
	}
	c.wg.Wait()
}

// kinds are the requests that come in turn.
var kinds = [...]struct {
	name, text  string
	mayRunTwice bool
}{
	{"GET", "GET / HTTP/1.1\r\nHost: app\r\n\r\n", true},
	{"PUT", "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 5\r\n\r\nhello", true},
	{"POST with a key", "POST / HTTP/1.1\r\nHost: app\r\nIdempotency-Key: k\r\nContent-Length: 5\r\n\r\nhello", true},
	{"POST", "POST / HTTP/1.1\r\nHost: app\r\nContent-Length: 5\r\n\r\nhello", false},
}

// request is one of a client.
type request struct {
	kind   int
	had    bool // the application that was killed had it
	status int  // 0: no response
	reason string
	err    error
	at     time.Time // of the response
}

func (r *request) ask(nc net.Conn) {
	if _, r.err = nc.Write([]byte(kinds[r.kind].text)); r.err != nil {
		return
	}
	res, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if r.at, r.err = time.Now(), err; err != nil {
		return
	}
	_ = res.Body.Close()
	r.status, r.reason = res.StatusCode, res.Header.Get("X-Retryproxy-Reason")
}

// result is what came of a run.
type result struct {
	first, last             time.Duration // answers after the port was open
	answered, refused, lost int
	losses                  []string // the first of them
}

// judge counts what became of the requests.
func judge(all []*request, opened time.Time) *result {
	r := &result{}
	var served []time.Time
	for _, q := range all {
		switch {
		case q.status == 200:
			r.answered++
			served = append(served, q.at)
		case q.had && !kinds[q.kind].mayRunTwice && q.status == 502 && q.reason == "not_idempotent":
			r.refused++
		default:
			if r.lost++; len(r.losses) < 10 {
				r.losses = append(r.losses, fmt.Sprintf("%s: status %d, reason %q, error %v", kinds[q.kind].name, q.status, q.reason, q.err))
			}
		}
	}
	if len(served) > 0 {
		r.first, r.last = slices.MinFunc(served, time.Time.Compare).Sub(opened), slices.MaxFunc(served, time.Time.Compare).Sub(opened)
	}
	return r
}

func (r *result) String() string {
	const step = 100 * time.Microsecond
	return fmt.Sprintf("first served %v after the port was open, the last %v; %d answered, %d refused as they may not run twice, %d lost",
		r.first.Round(step), r.last.Round(step), r.answered, r.refused, r.lost)
}
