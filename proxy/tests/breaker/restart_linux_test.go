package breaker

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// application is what restarts: it notes which requests it was sent.
type application struct {
	mu  sync.Mutex
	got map[string]int // by path
}

func (a *application) note(headers string) {
	_, rest, _ := strings.Cut(headers, " ")
	path, _, _ := strings.Cut(rest, " ")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got[path]++
}

func (a *application) sent() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.got) }

// serve reads requests and answers each when then says so; false: the process
// is killed instead, which its clients see as a reset.
func (a *application) serve(then func() bool) func(c *peers.Conn) {
	return func(c *peers.Conn) {
		for {
			headers := c.Head()
			if headers == "" {
				return
			}
			peers.DiscardBody(c, headers)
			a.note(headers)
			if !then() {
				c.Reset()
				return
			}
			c.Say(peers.OK200)
		}
	}
}

// restartClient is one request and what became of it.
type restartClient struct {
	path, request  string
	mayRunTwice    bool
	status, reason string
}

func newRestartClient(wave string, i int) *restartClient {
	c := &restartClient{path: fmt.Sprintf("/%s/%d", wave, i), mayRunTwice: true}
	kind := []string{"GET %s HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"PUT %s HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello",
		"POST %s HTTP/1.1\r\nHost: app.test\r\nIdempotency-Key: k\r\nContent-Length: 5\r\n\r\nhello",
		"POST %s HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello"}
	c.request = fmt.Sprintf(kind[i%len(kind)], c.path)
	c.mayRunTwice = i%len(kind) != 3
	return c
}

// ask sends the request and waits for its response, however long that takes.
func (c *restartClient) ask(nc net.Conn) {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patienceOfTests))
	r := &peers.Client{Conn: nc, Reader: bufio.NewReader(nc)}
	if _, err := nc.Write([]byte(c.request)); err != nil {
		c.status = err.Error()
		return
	}
	line, err := r.Reader.ReadString('\n')
	if err != nil {
		c.status = err.Error()
		return
	}
	c.status = strings.TrimSpace(line)
	for line != "\r\n" && err == nil {
		line, err = r.Reader.ReadString('\n')
		if v, ok := strings.CutPrefix(line, "X-Retryproxy-Reason: "); ok {
			c.reason = strings.TrimSpace(v)
		}
	}
}

const patienceOfTests = 4 * time.Minute

// An application with a thousand requests in flight is killed and restarted beside its sidecar,
// while as many keep arriving. No request is lost that may run twice or was never sent, and no
// other request is sent twice.
func TestAKilledApplicationLosesOnlyWhatMayNotRunTwice(t *testing.T) {
	const inFlight, later = 1000, 200
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.NoBudget = false
		c.Default.Budget = budget.Config{Ratio: 0.2, MinPerSecond: 1, Burst: 10} // the defaults
		c.Default.LimitQueueTimeout = patienceOfTests                            // on a slow machine the limit may bind after the restart
		c.Default.QueueTimeout, c.Default.RequestTimeout, c.Default.AttemptTimeout = patienceOfTests, patienceOfTests, patienceOfTests
	})
	a := &application{got: map[string]int{}}
	killed := make(chan struct{})
	u := peers.ServeListener(t, permit.Open(), a.serve(func() bool { <-killed; return false }))
	kill := sync.OnceFunc(func() { _ = u.Close(); close(killed) })
	t.Cleanup(kill) // before the application is stopped

	var all []*restartClient
	var wg sync.WaitGroup
	come := func(wave string, n int) {
		for i := range n {
			c := newRestartClient(wave, i)
			all = append(all, c)
			nc, err := net.Dial("tcp", p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { c.ask(nc) })
		}
	}
	come("before", inFlight)
	// On a slow machine the breaker may take the application for stalled while they come.
	peers.Soon(t, "all requests were sent or held", func() bool { return a.sent()+p.Guard().Queued >= inFlight })
	kill()
	u.Wait()
	come("while-down", later)
	peers.Soon(t, "all that was not lost was held", func() bool {
		defer p.Seen.Lock()()
		return p.Guard().Queued+len(p.Seen.Outcomes) == inFlight+later
	})
	lost := len(lostSoFar(p.Front))
	peers.ServeListener(t, permit.Open(), a.serve(func() bool { return true }))
	wg.Wait()

	failed := 0
	for _, c := range all {
		ok := strings.HasPrefix(c.status, "HTTP/1.1 200 ")
		switch runs := a.got[c.path]; {
		case !ok && (c.mayRunTwice || strings.HasPrefix(c.path, "/while-down/")):
			t.Errorf("%s %s: lost: %q %s", strings.Fields(c.request)[0], c.path, c.status, c.reason)
		case !ok && (!strings.HasPrefix(c.status, "HTTP/1.1 502 ") || c.reason != "not_idempotent"):
			t.Errorf("%s: %q, reason %q", c.path, c.status, c.reason)
		case !c.mayRunTwice && runs > 1:
			t.Errorf("%s ran %d times", c.path, runs)
		case ok && runs == 0:
			t.Errorf("%s was answered and never sent", c.path)
		}
		if !ok {
			failed++
		}
	}
	if failed != lost || failed > inFlight/4 {
		t.Errorf("%d failed, %d of them before the port opened again, of %d that may not run twice", failed, lost, inFlight/4)
	}
	if g := p.Guard(); g.Probes == 0 || g.SlowStarts == 0 {
		t.Errorf("the breaker did not close, probe and open: %+v", g)
	}
}

// lostSoFar are the outcomes of requests that have ended.
func lostSoFar(p *peers.Front) []policy.Outcome {
	defer p.Seen.Lock()()
	return append([]policy.Outcome(nil), p.Seen.Outcomes...)
}
