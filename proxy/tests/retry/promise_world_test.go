package retry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// promiseSource is a source of its own for each use in a world.
func promiseSource(seed, use, n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, use<<32|n)) }

// What a source is for.
const (
	drawsWorld = iota
	drawsDial
	drawsAct // plus the number of the request
)

func newPromiseWorld(seed uint64) *promiseWorld {
	r := promiseSource(seed, drawsWorld, 0)
	w := &promiseWorld{seed: seed, troubled: peers.OneOf(r, 10, 40, 70, 100), refusing: peers.OneOf(r, 0, 0, 10, 60)}
	for range 1 + r.IntN(8) {
		var mine []*promiseRequest
		for range 1 + r.IntN(6) {
			q := &promiseRequest{id: len(w.requests), method: peers.OneOf(r, "GET", "GET", "PUT", "POST", "DELETE", "PATCH"), key: r.IntN(8) == 0}
			if q.method != "GET" {
				q.body = peers.OneOf(r, 0, 5, 3000, 20000)
			}
			if q.body > 0 && r.IntN(4) == 0 {
				q.pause = promiseTime(r)
			}
			if q.body < 20000 && r.IntN(6) == 0 { // a full buffer is looked behind in other ways, which connections in memory do not have
				q.leaves = promiseTime(r)
			}
			mine, w.requests = append(mine, q), append(w.requests, q)
		}
		w.clients = append(w.clients, mine)
	}
	if r.IntN(6) == 0 {
		w.drainAfter = 1 + promiseTime(r)
	}
	return w
}

// promiseTime is now and then the very time at which something else happens.
func promiseTime(r *rand.Rand) time.Duration {
	if r.IntN(3) == 0 {
		return peers.OneOf(r, 200*time.Millisecond, time.Second, 5*time.Second, 7*time.Second, 30*time.Second)
	}
	return time.Duration(1 + r.Int64N(int64(peers.OneOf(r, time.Millisecond, time.Second, 20*time.Second))))
}

// configure draws the policy.
func (w *promiseWorld) configure(c *proxy.Config) {
	r := promiseSource(w.seed, drawsWorld, 1)
	route := &c.Default
	on, err := policy.ParseRetryOn(peers.OneOf(r, peers.UsualRetryOn, peers.UsualRetryOn, "5xx", "429,reset", "connect-failure", "5xx,429,reset", "none"))
	if err != nil {
		panic(err)
	}
	route.Policy = policy.Policy{
		RetryOn: on, MaxRetries: peers.OneOf(r, 0, 1, 2, 3, 6),
		Unsafe: r.IntN(8) == 0, Backoff: promiseBackoff(r), Throttled: peers.OneOf(r, nil, promiseBackoff(r)),
	}
	route.NoBudget = r.IntN(4) == 0
	route.Budget = budget.Config{Ratio: peers.OneOf(r, 0.0001, 0.2, 1), MinPerSecond: peers.OneOf(r, 0.0001, 1, 10), Burst: 1 + r.IntN(10)}
	route.RequestTimeout = peers.OneOf(r, 0, time.Second, 5*time.Second, 30*time.Second)
	route.AttemptTimeout = peers.OneOf(r, 0, 200*time.Millisecond, time.Second, 7*time.Second)
	route.RetryBufferBytes = peers.OneOf[int64](r, 100, 10_000, 1<<20)
	route.ResponseBufferBytes = peers.OneOf[int64](r, 3, 64<<10)
	c.RetryBufferTotalBytes = peers.OneOf[int64](r, 8<<10, 64<<10, 64<<20)
	if r.IntN(3) == 0 {
		route.Guard.NoBreaker, route.FailFast, route.QueueTimeout = false, peers.OneOf(r, false, true), peers.OneOf(r, time.Second, 20*time.Second)
	}
	c.DrainTimeout = time.Hour
	c.Journal = promiseJournal{w}
	dial := route.Upstream.Dial
	route.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := w.dial(ctx); err != nil {
			return nil, err
		}
		return dial(ctx, network, address)
	}
	w.route, w.config = *route, c
}

func promiseBackoff(r *rand.Rand) backoff.Strategy {
	b, err := backoff.New(peers.OneOf(r, backoff.Strategies()...), backoff.Options{Base: peers.OneOf(r, time.Millisecond, 200*time.Millisecond, time.Second), Max: peers.OneOf(r, time.Second, 10*time.Second)})
	if err != nil {
		panic(err)
	}
	return b
}

// dial says whether and when the next dial succeeds.
func (w *promiseWorld) dial(ctx context.Context) error {
	w.mu.Lock()
	w.dials++
	r := promiseSource(w.seed, drawsDial, w.dials)
	w.mu.Unlock()
	if r.IntN(10) == 0 {
		select {
		case <-time.After(promiseTime(r)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.IntN(100) < w.refusing {
		return errors.New("refused")
	}
	return nil
}

// run lets all clients send all of their requests.
func (w *promiseWorld) run(t *testing.T, m *proxytest.Memory) {
	w.seen = m.Seen
	var all sync.WaitGroup
	for i, mine := range w.clients {
		all.Go(func() { w.call(m, promiseSource(w.seed, drawsWorld, uint64(2+i)), mine) })
	}
	if w.drainAfter > 0 {
		time.Sleep(w.drainAfter)
		w.mu.Lock()
		w.drained = time.Now()
		w.mu.Unlock()
		_ = m.Drain(context.Background())
	}
	all.Wait()
	time.Sleep(time.Hour) // what nobody waits for any more comes to its end
	if n := m.Stats().InFlight; n != 0 {
		t.Errorf("world %d: %d requests are still in flight", w.seed, n)
	}
}

// call sends requests one after the other.
func (w *promiseWorld) call(m *proxytest.Memory, r *rand.Rand, mine []*promiseRequest) {
	var c *promiseClient
	for _, q := range mine {
		time.Sleep(promiseTime(r))
		if c == nil {
			theirs, ours := net.Pipe()
			c = &promiseClient{Conn: theirs, r: bufio.NewReader(theirs)}
			served := make(chan struct{})
			go func() { defer close(served); m.ServeConn(ours, "") }()
			defer func() { theirs.Close(); <-served }()
		}
		if !c.exchange(w, q) {
			c.Close()
			c = nil
		}
	}
}

type promiseClient struct {
	net.Conn
	r *bufio.Reader
}

// exchange sends a request and reads the response; false: the connection is not
// to be used again.
func (c *promiseClient) exchange(w *promiseWorld, q *promiseRequest) bool {
	w.mu.Lock()
	q.began = time.Now()
	w.mu.Unlock()
	written := make(chan error, 1)
	go func() { written <- c.write(q) }()
	stays := w.leaving(c, q)
	res, err := http.ReadResponse(c.r, &http.Request{Method: q.method})
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
	}
	if !stays() || err != nil {
		c.Close()
		<-written
		return false
	}
	w.mu.Lock()
	q.status, q.answered = res.StatusCode, time.Now()
	w.mu.Unlock()
	if res.Close {
		c.Close()
	}
	return <-written == nil && !res.Close
}

// leaving has the client leave when it is to. What it gives stops that, and says
// whether the client is still there.
func (w *promiseWorld) leaving(c *promiseClient, q *promiseRequest) (stays func() bool) {
	if q.leaves == 0 {
		return func() bool { return true }
	}
	return time.AfterFunc(q.leaves, func() {
		w.mu.Lock()
		q.left = time.Now()
		w.mu.Unlock()
		c.Close()
	}).Stop
}

func (c *promiseClient) write(q *promiseRequest) error {
	key := ""
	if q.key {
		key = "Idempotency-Key: k\r\n"
	}
	headers := fmt.Sprintf("%s /p/%d HTTP/1.1\r\nHost: a\r\n%sContent-Length: %d\r\n\r\n", q.method, q.id, key, q.body)
	body := strings.Repeat("b", q.body)
	if q.pause == 0 {
		_, err := io.WriteString(c, headers+body)
		return err
	}
	if _, err := io.WriteString(c, headers+body[:q.body/2]); err != nil {
		return err
	}
	time.Sleep(q.pause)
	_, err := io.WriteString(c, body[q.body/2:])
	return err
}
