package proxy

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// withBreaker switches breaker and adaptive limit on, as they are by default.
func withBreaker(c *Config) { c.Default.Guard = breaker.Options{} }

func (p *testProxy) guard() breaker.GuardState { return p.Stats().Upstreams[0].Guard }

// A restart of the application beside its sidecar costs clients latency, not errors, if their
// requests were never sent, whatever the method, or may run twice.
func TestARestartCostsClientsLatencyNotErrors(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, withBreaker)
	const clients = 200
	var wg sync.WaitGroup
	var mu sync.Mutex
	wrong := map[string]int{}
	var first time.Time
	for i := range clients {
		c := p.dial()
		wg.Go(func() {
			request := get("/")
			if i%2 == 1 {
				request = post("x")
			}
			c.send(request)
			res, body, err := c.response("GET")
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
	soon(t, "client held", func() bool { return p.guard().Queued > clients/2 })
	time.Sleep(300 * time.Millisecond)
	opened := time.Now()
	serveListener(t, permit.open(), script(ok200))
	wg.Wait()
	if len(wrong) > 0 {
		t.Errorf("wrong answers: %v", wrong)
	}
	t.Logf("first response %v after the port opened", first.Sub(opened))
	g := p.guard()
	if g.Opened[breaker.OpenedByRefused] == 0 || g.Probes == 0 {
		t.Errorf("the breaker did not close and probe: %+v", g)
	}
	p.seen.outcome(t, clients-1)
	defer p.seen.lock()()
	for i, n := range p.seen.attempts {
		if n > 2 {
			t.Errorf("request %d took %d attempts, want at most the one that found the port closed and one more", i, n)
		}
	}
}

func TestFailFastRespondsAtOnceWithRetryAfter(t *testing.T) {
	p := startProxyTo(t, "http://"+reservePort(t).addr, func(c *Config) {
		withBreaker(c)
		c.Default.FailFast = true
	})
	c := p.dial()
	c.send(get("/")) // opens the breaker
	res, _, err := c.response("GET")
	if err != nil || res.StatusCode < 500 {
		t.Fatal(res, err)
	}
	res = c.send(get("/")).want(503, "*")
	if res.Header.Get("Retry-After") == "" || res.Header.Get("X-Retryproxy-Reason") != "fail_fast" {
		t.Errorf("header %v", res.Header)
	}
	if o := p.seen.outcome(t, 1); o != policy.OutcomeFailFast {
		t.Errorf("outcome %v", o)
	}
}

func TestQueueTimeoutEndsWith503(t *testing.T) {
	p := startProxyTo(t, "http://"+reservePort(t).addr, func(c *Config) {
		withBreaker(c)
		c.Default.QueueTimeout = 50 * time.Millisecond
	})
	res := p.dial().send(get("/")).want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "queue_timeout" {
		t.Errorf("reason %q", got)
	}
}

func TestAClientThatLeavesTheQueueFreesItsPermit(t *testing.T) {
	p := startProxyTo(t, "http://"+reservePort(t).addr, withBreaker)
	c := p.dial().send(get("/"))
	soon(t, "client held", func() bool { return p.guard().Queued == 1 })
	c.Close()
	soon(t, "place freed", func() bool { return p.guard().Queued == 0 })
	if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
}

func TestAFullQueueDropsTheOldest(t *testing.T) {
	p := startProxyTo(t, "http://"+reservePort(t).addr, func(c *Config) {
		withBreaker(c)
		c.Default.QueueMax = 2
	})
	oldest := p.dial().send(get("/1"))
	soon(t, "first client held", func() bool { return p.guard().Queued == 1 })
	p.dial().send(get("/2"))
	soon(t, "second client held", func() bool { return p.guard().Queued == 2 })
	p.dial().send(get("/3"))
	res := oldest.want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "queue_dropped" {
		t.Errorf("reason %q", got)
	}
}

func TestBeyondAFixedLimitRequestsQueueThenAreRejected(t *testing.T) {
	release := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		for c.head() != "" {
			<-release
			c.say(ok200)
		}
	})
	p := startProxy(t, u, func(c *Config) {
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
	})
	first := p.dial().send(get("/1"))
	soon(t, "request upstream", func() bool { return u.sends() == 1 })
	second := p.dial().send(get("/2"))
	soon(t, "request queued", func() bool { return p.guard().Queued == 1 })
	release <- struct{}{}
	first.want(200, "ok")
	soon(t, "second request upstream", func() bool { return u.sends() == 2 })
	res := p.dial().send(get("/3")).want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "overloaded" {
		t.Errorf("reason %q", got)
	}
	release <- struct{}{}
	second.want(200, "ok")
}

// A server that accepts requests and never responds is detected by its leaving clients. When it
// continues, the late response of the probe closes the breaker.
func TestASilentUpstreamOpensTheBreakerAndItsLateResponseClosesIt(t *testing.T) {
	silent := make(chan struct{})
	u := startUpstream(t, func(c *upConn) {
		for c.head() != "" {
			select {
			case <-silent:
			default:
				if c.up.sends() > 100 {
					<-silent
				}
			}
			c.say(ok200)
		}
	})
	goOn := sync.OnceFunc(func() { close(silent) })
	t.Cleanup(goOn) // before the upstream is stopped
	p := startProxy(t, u, withBreaker)
	c := p.dial()
	for range 100 { // long enough to know what is usual
		c.send(get("/")).want(200, "ok")
		time.Sleep(10 * time.Millisecond)
	}
	stop := time.Now().Add(10 * time.Second)
	var leaving sync.WaitGroup
	for p.guard().Breaker == breaker.Closed && time.Now().Before(stop) {
		impatient := p.dial().send(get("/"))
		leaving.Go(func() {
			time.Sleep(1200 * time.Millisecond)
			impatient.Close()
		})
		time.Sleep(10 * time.Millisecond)
	}
	if p.guard().Breaker == breaker.Closed {
		t.Fatalf("the breaker stayed open: %+v", p.guard())
	}
	leaving.Wait()
	held := p.dial().send(get("/held"))
	soon(t, "request held or probing", func() bool { g := p.guard(); return g.Queued > 0 || g.Probes > 0 })
	sends := u.sends()
	if sends > 1000 {
		t.Errorf("%d requests were sent to a silent upstream", sends)
	}
	before := p.guard()
	goOn()
	defer func() {
		if t.Failed() {
			t.Logf("before the upstream went on: %+v\nat the end: %+v", before, p.guard())
		}
	}()
	held.want(200, "ok")
	soon(t, "closed breaker", func() bool { g := p.guard().Breaker; return g == breaker.Closed || g == breaker.SlowStart })
}

func TestDrainEndsWaitsForTheBreaker(t *testing.T) {
	p := startProxyTo(t, "http://"+reservePort(t).addr, withBreaker)
	c := p.dial().send(get("/"))
	soon(t, "client held", func() bool { return p.guard().Queued == 1 })
	go func() { _ = p.Drain(t.Context()) }()
	res := c.want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
		t.Errorf("reason %q", got)
	}
}

func TestRequestsQueuedBeforeAReloadAreStillAdmitted(t *testing.T) {
	permit := reservePort(t)
	p := startProxyTo(t, "http://"+permit.addr, withBreaker)
	c := p.dial().send(get("/"))
	soon(t, "client held", func() bool { return p.guard().Queued == 1 })
	other := startUpstream(t, script(bad503))
	next := testConfig(t, "http://"+other.Addr().String(), p.seen)
	if err := p.Reload(next); err != nil {
		t.Fatal(err)
	}
	serveListener(t, permit.open(), script(ok200))
	c.want(200, "ok")
}

func TestAnUpstreamCannotBlockItsClientsWhereNothingElseBoundsTheWait(t *testing.T) {
	u := startUpstream(t, script("HTTP/1.1 503 No\r\nRetry-After: 86400\r\nContent-Length: 4\r\n\r\nbusy"))
	p := startProxy(t, u, func(c *Config) { c.Default.RequestTimeout = 0 })
	res := p.dial().send(get("/")).want(503, "busy")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "retry_after_too_long" {
		t.Errorf("reason %q", got)
	}
}

// A request that arrives in a drain while the breaker is open is not queued, and gets the reason
// draining.
func TestARequestThatComesInADrainIsNotQueued(t *testing.T) {
	p := startProxyTo(t, "http://"+reservePort(t).addr, withBreaker)
	held, late := p.dial().send(get("/")), p.dial()
	soon(t, "client held", func() bool { return p.guard().Queued == 1 })
	soon(t, "second client", func() bool { return p.Stats().Connections == 2 })
	go func() { _ = p.Drain(t.Context()) }()
	if _, _, err := held.response("GET"); err != nil { // it waits, or it probes
		t.Error(err)
	}
	res := late.send(get("/")).want(503, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "draining" {
		t.Errorf("reason %q", got)
	}
	p.wantOutcome(1, policy.GaveUp(policy.ReasonDraining))
}
