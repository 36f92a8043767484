package breaker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// A restart of the application beside its sidecar costs clients latency, not errors, if their
// requests were never sent, whatever the method, or may run twice.
func TestARestartCostsClientsLatencyNotErrors(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, peers.WithBreaker)
	const clients = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	wrong := map[string]int{}
	var first time.Time
	for i := range clients {
		c := p.Dial()
		wg.Go(func() {
			request := peers.Get("/")
			if i%2 == 1 {
				request = peers.Post("x")
			}
			c.Send(request)
			res, body, err := c.Response("GET")
			mu.Lock()
			defer mu.Unlock()
			if first.IsZero() {
				first = time.Now()
			}
			if err != nil || res.StatusCode != 200 || body != "ok" {
				wrong[fmt.Sprint(res, body, err)]++
			}
		})
	}
	peers.Soon(t, "client held", func() bool { return p.Guard().Queued > clients/2 })
	time.Sleep(300 * time.Millisecond)
	opened := time.Now()
	peers.ServeListener(t, permit.Open(), peers.Script(peers.OK200))
	wg.Wait()
	if len(wrong) > 0 {
		t.Errorf("wrong answers: %v", wrong)
	}
	t.Logf("first response %v after the port opened", first.Sub(opened))
	g := p.Guard()
	if g.Opened[breaker.OpenedByRefused] == 0 || g.Probes == 0 {
		t.Errorf("the breaker did not close and probe: %+v", g)
	}
	p.Seen.Outcome(t, clients-1)
	defer p.Seen.Lock()()
	for i, n := range p.Seen.Attempts {
		if n > 2 {
			t.Errorf("request %d took %d attempts, want at most the one that found the port closed and one more", i, n)
		}
	}
}

func TestFailFastRespondsAtOnceWithRetryAfter(t *testing.T) {
	p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.FailFast = true
	})
	c := p.Dial()
	c.Send(peers.Get("/")) // opens the breaker
	res, _, err := c.Response("GET")
	if err != nil || res.StatusCode < 500 {
		t.Fatal(res, err)
	}
	res = c.Send(peers.Get("/")).Want(503, "*")
	if res.Header.Get("Retry-After") == "" || res.Header.Get("X-Retryproxy-Reason") != "fail_fast" {
		t.Errorf("header %v", res.Header)
	}
	if o := p.Seen.Outcome(t, 1); o != policy.OutcomeFailFast {
		t.Errorf("outcome %v", o)
	}
}

func TestQueueTimeoutEndsWith503(t *testing.T) {
	p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.QueueTimeout = 50 * time.Millisecond
	})
	res := p.Dial().Send(peers.Get("/")).Want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "queue_timeout" {
		t.Errorf("reason %q", got)
	}
}

func TestAClientThatLeavesTheQueueFreesItsPermit(t *testing.T) {
	p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, peers.WithBreaker)
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "client held", func() bool { return p.Guard().Queued == 1 })
	c.Close()
	peers.Soon(t, "place freed", func() bool { return p.Guard().Queued == 0 })
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

func TestAFullQueueDropsTheOldest(t *testing.T) {
	p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, func(c *proxy.Config) {
		peers.WithBreaker(c)
		c.Default.QueueMax = 2
	})
	oldest := p.Dial().Send(peers.Get("/1"))
	peers.Soon(t, "first client held", func() bool { return p.Guard().Queued == 1 })
	p.Dial().Send(peers.Get("/2"))
	peers.Soon(t, "second client held", func() bool { return p.Guard().Queued == 2 })
	p.Dial().Send(peers.Get("/3"))
	res := oldest.Want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "queue_dropped" {
		t.Errorf("reason %q", got)
	}
}

func TestBeyondAFixedLimitRequestsQueueThenAreRejected(t *testing.T) {
	release := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for c.Head() != "" {
			<-release
			c.Say(peers.OK200)
		}
	})
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
	})
	first := p.Dial().Send(peers.Get("/1"))
	peers.Soon(t, "request upstream", func() bool { return u.Sends() == 1 })
	second := p.Dial().Send(peers.Get("/2"))
	peers.Soon(t, "request queued", func() bool { return p.Guard().Queued == 1 })
	release <- struct{}{}
	first.Want(200, "ok")
	peers.Soon(t, "second request upstream", func() bool { return u.Sends() == 2 })
	res := p.Dial().Send(peers.Get("/3")).Want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "overloaded" {
		t.Errorf("reason %q", got)
	}
	release <- struct{}{}
	second.Want(200, "ok")
}

// A server that accepts requests and never responds is detected by its leaving clients. When it
// continues, the late response of the probe closes the breaker.
func TestASilentUpstreamOpensTheBreakerAndItsLateResponseClosesIt(t *testing.T) {
	silent := make(chan struct{})
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		for c.Head() != "" {
			select {
			case <-silent:
			default:
				if c.Up.Sends() > 100 {
					<-silent
				}
			}
			c.Say(peers.OK200)
		}
	})
	goOn := sync.OnceFunc(func() { close(silent) })
	t.Cleanup(goOn) // before the upstream is stopped
	p := proxytest.Start(t, u, peers.WithBreaker)
	c := p.Dial()
	for range 100 { // long enough to know what is usual
		c.Send(peers.Get("/")).Want(200, "ok")
		time.Sleep(10 * time.Millisecond)
	}
	stop := time.Now().Add(10 * time.Second)
	var leaving sync.WaitGroup
	for p.Guard().Breaker == breaker.Closed && time.Now().Before(stop) {
		impatient := p.Dial().Send(peers.Get("/"))
		leaving.Go(func() {
			time.Sleep(1200 * time.Millisecond)
			impatient.Close()
		})
		time.Sleep(10 * time.Millisecond)
	}
	if p.Guard().Breaker == breaker.Closed {
		t.Fatalf("the breaker stayed open: %+v", p.Guard())
	}
	leaving.Wait()
	held := p.Dial().Send(peers.Get("/held"))
	peers.Soon(t, "request held or probing", func() bool { g := p.Guard(); return g.Queued > 0 || g.Probes > 0 })
	sends := u.Sends()
	if sends > 1000 {
		t.Errorf("%d requests were sent to a silent upstream", sends)
	}
	before := p.Guard()
	goOn()
	defer func() {
		if t.Failed() {
			t.Logf("before the upstream went on: %+v\nat the end: %+v", before, p.Guard())
		}
	}()
	held.Want(200, "ok")
	peers.Soon(t, "closed breaker", func() bool { g := p.Guard().Breaker; return g == breaker.Closed || g == breaker.SlowStart })
}

func TestDrainEndsWaitsForTheBreaker(t *testing.T) {
	p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, peers.WithBreaker)
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "client held", func() bool { return p.Guard().Queued == 1 })
	go func() { _ = p.Drain(t.Context()) }()
	res := c.Want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
		t.Errorf("reason %q", got)
	}
}

func TestRequestsQueuedBeforeAReloadAreStillAdmitted(t *testing.T) {
	permit := peers.ReservePort(t)
	p := proxytest.StartTo(t, "http://"+permit.Addr, peers.WithBreaker)
	c := p.Dial().Send(peers.Get("/"))
	peers.Soon(t, "client held", func() bool { return p.Guard().Queued == 1 })
	other := peers.StartUpstream(t, peers.Script(peers.Bad503))
	next := peers.NewConfig(t, "http://"+other.Addr().String(), p.Seen)
	if err := p.Reload(next); err != nil {
		t.Fatal(err)
	}
	peers.ServeListener(t, permit.Open(), peers.Script(peers.OK200))
	c.Want(200, "ok")
}

func TestAnUpstreamCannotBlockItsClientsWhereNothingElseBoundsTheWait(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script("HTTP/1.1 503 No\r\nRetry-After: 86400\r\nContent-Length: 4\r\n\r\nbusy"))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.RequestTimeout = 0 })
	res := p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_after_too_long" {
		t.Errorf("reason %q", got)
	}
}

// A request that arrives in a drain while the breaker is open is not queued, and gets the reason
// draining.
func TestARequestThatComesInADrainIsNotQueued(t *testing.T) {
	p := proxytest.StartTo(t, "http://"+peers.ReservePort(t).Addr, peers.WithBreaker)
	held, late := p.Dial().Send(peers.Get("/")), p.Dial()
	peers.Soon(t, "client held", func() bool { return p.Guard().Queued == 1 })
	peers.Soon(t, "second client", func() bool { return p.Stats().Connections == 2 })
	go func() { _ = p.Drain(t.Context()) }()
	if _, _, err := held.Response("GET"); err != nil { // it waits, or it probes
		t.Error(err)
	}
	res := late.Send(peers.Get("/")).Want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
		t.Errorf("reason %q", got)
	}
	p.WantOutcome(1, policy.GaveUp(policy.ReasonDraining))
}
