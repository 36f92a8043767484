package everyrule

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// proto is what one side of the proxy speaks.
type proto string

const (
	one proto = "HTTP1"
	two proto = "HTTP2"
)

// rule is a rule of the retry loop as a case. It is written once and holds for every protocol on
// either side: what the upstream does with each attempt, what the client does, and the expected
// result.
type rule struct {
	name   string
	set    func(t *testing.T, c *proxy.Config)
	down   int   // number of dials refused first; < 0: until the test allows them
	acts   []act // of the upstream, attempt by attempt; the last one repeats
	call   call
	stuck  bool         // the first dial does not come to an end by itself
	before func(r *run) // runs before the request is sent
	// during runs while the request is in flight.
	during func(r *run)
	want   want
	// unlike changes the expected result where the protocols differ, and returns the reason.
	unlike func(client, up proto, w *want) (why string)
	// only returns why the case has no meaning for these two protocols; "" means that it has one.
	only func(client, up proto) (why string)
}

// want is the expected result of a request.
type want struct {
	status         int    // 0: the client has no response; < 0: any of 5xx
	body           string // "*": any
	cut            bool   // the response looks cut off to the client
	reason         string // X-Retryproxy-Reason
	sends          int    // requests that reached the upstream
	attempts       int    // 0: as many; < 0: any number
	attemptsHeader int    // X-Retryproxy-Attempts; 0: as many
	outcome        policy.Outcome
	classes        []policy.Class  // of the attempts; nil: not looked at
	retries        []policy.Reason // why each retry was; nil: not looked at
	givenUp        int             // attempts of which the upstream was told that nobody waits any more
	check          func(r *run)    // whatever else
}

// run is a rule being tried.
type run struct {
	*testing.T
	rule
	p       *proxytest.Proxy
	up      *scripted
	client  *protoClient
	release chan struct{} // for acts that wait for the test
	once    sync.Once     // for release
	refuses atomic.Int64  // dials to refuse; < 0: all
	dials   atomic.Int64
	ended   atomic.Bool // the proxy drains or has ended: nobody is served any more
	drained chan error
}

// TestEveryRuleOverEveryProtocol runs the rules over both protocols of clients and both
// of upstreams.
func TestEveryRuleOverEveryProtocol(t *testing.T) {
	names := map[string]bool{}
	var all sync.WaitGroup
	room := make(chan struct{}, 8) // most of them wait most of the time
	for _, c := range slices.Concat(responseRules, methodRules, bodyRules, unsentRules, unknownRules, timeRules, leaveRules, drainRules, queueRules, wireRules) {
		if names[c.name] {
			t.Fatalf("two cases are called %q", c.name)
		}
		names[c.name] = true
		for _, client := range []proto{one, two} {
			for _, up := range []proto{one, two} {
				room <- struct{}{}
				all.Go(func() {
					defer func() { <-room }()
					t.Run(fmt.Sprintf("%s/%s to %s", c.name, client, up), func(t *testing.T) { c.try(t, client, up) })
				})
			}
		}
	}
	all.Wait()
}

func (c rule) try(t *testing.T, client, up proto) {
	if c.only != nil {
		if why := c.only(client, up); why != "" {
			t.Skip(why)
		}
	}
	if c.unlike != nil {
		if why := c.unlike(client, up, &c.want); why != "" {
			t.Log("unlike the others: " + why)
		}
	}
	r := &run{T: t, rule: c, release: make(chan struct{}), drained: make(chan error, 1)}
	r.refuses.Store(int64(c.down))
	r.up = startScripted(r, up)
	r.p = proxytest.StartTo(t, r.up.url, func(conf *proxy.Config) {
		peers.SpeakHTTP2(conf)
		conf.Default.Upstream.Dial = r.dial
		conf.DrainTimeout, conf.Default.AttemptTimeout, conf.Default.BodyIdleTimeout = peers.Patience, peers.Patience, peers.Patience // a slow machine meets no limit that a case does not set
		if c.set != nil {
			c.set(t, conf)
		}
	})
	r.client = newProtoClient(r, client)
	if c.before != nil {
		c.before(r)
	}
	got := r.client.begin(&r.call)
	if c.during != nil {
		c.during(r)
	}
	r.judge(peers.Within(t, "the client's end", got))
}

func (r *run) judge(got *clientResult) {
	r.Helper()
	w := &r.want
	r.p.WantOutcome(0, w.outcome)
	r.judgeResponse(got)
	if n := r.up.arrived(); n != w.sends {
		r.Errorf("%d requests reached the upstream, want %d", n, w.sends)
	}
	r.judgeArrivals()
	r.judgeMetrics()
	peers.Soon(r, "the attempts being given up", func() bool { return r.up.givenUp() >= w.givenUp })
	if w.check != nil {
		w.check(r)
	}
	if !r.ended.Load() {
		r.wantGoesOn()
	}
}

func (r *run) judgeResponse(got *clientResult) {
	r.Helper()
	w := &r.want
	if got.status != w.status && (w.status >= 0 || got.status < 500) {
		r.Fatalf("the client got %d %.100q (%v), want %d", got.status, got.body, got.err, w.status)
	}
	if w.status == 0 {
		return
	}
	if (got.err != nil) != w.cut {
		r.Errorf("the response ended with %v, cut off wanted: %v", got.err, w.cut)
	}
	if w.body != "*" && string(got.body) != w.body {
		r.Errorf("the client got %d bytes %.100q, want %d bytes %.100q", len(got.body), got.body, len(w.body), w.body)
	}
	if reason := got.header.Get("X-Retryproxy-Reason"); reason != w.reason {
		r.Errorf("reason %q, want %q", reason, w.reason)
	}
	if n := got.header.Get("X-Retryproxy-Attempts"); n != "" && w.attempts >= 0 && n != strconv.Itoa(max(w.attemptsHeader, w.made())) {
		r.Errorf("the client is told of %s attempts, want %d", n, max(w.attemptsHeader, w.made()))
	}
}

func (w *want) made() int {
	if w.attempts > 0 {
		return w.attempts
	}
	return w.sends
}

// judgeArrivals: every attempt that came whole carried the client's request.
func (r *run) judgeArrivals() {
	r.Helper()
	for i, a := range r.up.all() {
		a.mu.Lock()
		if a.method != r.call.verb() || a.path != "/rule" {
			r.Errorf("attempt %d was %s %s", i+1, a.method, a.path)
		}
		if a.whole && r.call.upload == nil && !bytes.Equal(a.body, r.call.body) {
			r.Errorf("attempt %d carried %d bytes that differ from the %d sent", i+1, len(a.body), len(r.call.body))
		}
		for name := range r.call.trailers {
			if a.whole && a.trailers.Get(name) != r.call.trailers.Get(name) {
				r.Errorf("attempt %d came with trailers %v, want %v", i+1, a.trailers, r.call.trailers)
			}
		}
		a.mu.Unlock()
	}
}

// judgeMetrics compares what was counted.
func (r *run) judgeMetrics() {
	r.Helper()
	defer r.p.Seen.Lock()()
	seen, w := r.p.Seen, &r.want
	if len(seen.Outcomes) != 1 || seen.Began != 1 {
		r.Errorf("%d requests began and ended %v, want one", seen.Began, seen.Outcomes)
	}
	if n := len(seen.Classes); w.attempts >= 0 && n != w.made() || seen.Attempts[0] != n {
		r.Errorf("%d attempts were counted, and %d of the request; want %d", n, seen.Attempts[0], w.made())
	}
	if w.classes != nil && !slices.Equal(seen.Classes, w.classes) {
		r.Errorf("classes %v, want %v", seen.Classes, w.classes)
	}
	if w.retries != nil && !slices.Equal(seen.Retries, w.retries) {
		r.Errorf("retries for %v, want %v", seen.Retries, w.retries)
	}
	if seen.Waiting != 0 {
		r.Errorf("%d wait still", seen.Waiting)
	}
}

// wantGoesOn checks that the client is still served, whatever happened to its request.
func (r *run) wantGoesOn() {
	r.Helper()
	got := peers.Within(r, "the request afterwards", r.client.begin(&call{path: afterwards}))
	if got.status != 200 || string(got.body) != "after" {
		r.Errorf("afterwards the client got %d %q (%v)", got.status, got.body, got.err)
	}
}

// dial is the proxy's, as long as the upstream is not down.
func (r *run) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if r.dials.Add(1) == 1 && r.stuck {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if n := r.refuses.Load(); n != 0 {
		r.refuses.CompareAndSwap(n, max(n-1, -1))
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// warm makes the proxy have a connection to the upstream, and forgets the request.
func (r *run) warm() {
	r.wantGoesOn()
	r.p.Seen.Outcome(r, 0)
	defer r.p.Seen.Lock()()
	s := r.p.Seen
	s.Began, s.Outcomes, s.Codes, s.Attempts, s.Classes = 0, nil, nil, nil, nil
}

// untilNoticed returns when the proxy has seen the end of its HTTP/2 connections, which another
// goroutine reports. Over HTTP/1.1 the proxy checks before each use.
func (r *run) untilNoticed() {
	r.Helper()
	if strings.HasPrefix(r.up.url, "h2c:") {
		peers.Soon(r, "the end being noticed", func() bool { return r.p.Stats().Upstreams[0].Pool.Idle == 0 })
	}
}

// untilWaiting returns when the request waits for its retry.
func (r *run) untilWaiting() {
	r.Helper()
	peers.Soon(r, "the wait", func() bool { defer r.p.Seen.Lock()(); return r.p.Seen.Waiting == 1 })
}

// untilSent returns once n attempts have reached the upstream.
func (r *run) untilSent(n int) {
	r.Helper()
	peers.Soon(r, "the attempt", func() bool { return r.up.arrived() >= n })
}

// drain begins one.
func (r *run) drain() {
	r.ended.Store(true)
	go func() { r.drained <- r.p.Drain(context.Background()) }()
	peers.Soon(r, "the drain", func() bool { return r.p.Stats().Draining })
}

// goOn releases the acts that wait for the test.
func (r *run) goOn() { r.once.Do(func() { close(r.release) }) }
