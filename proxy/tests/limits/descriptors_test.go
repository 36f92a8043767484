package limits

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/exchange"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// fewDescriptors makes dials of the default route find no descriptor while none reports true.
func fewDescriptors(c *proxy.Config, none func() bool) {
	dial := c.Default.Upstream.Dial
	c.Default.Upstream.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if none() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("socket", syscall.EMFILE)}
		}
		return dial(ctx, network, address)
	}
}

// untouched checks that nothing counted against the upstream and no retry was spent.
func untouched(m *proxytest.Memory) {
	m.T.Helper()
	u := m.Stats().Upstreams[0]
	if g := u.Guard; g.Breaker != breaker.Closed || g.Suspect || g.InFlight != 0 || g.Probes != 0 {
		m.T.Errorf("the breaker: %+v", g)
	}
	if n := m.Seen.Retried(); n != 0 || u.HasBudget && u.BudgetTokens != 5 {
		m.T.Errorf("%d retries, %v tokens left", n, u.BudgetTokens)
	}
}

// withBreakerAndBudget sets the default breaker, and a budget of five.
func withBreakerAndBudget(c *proxy.Config) {
	peers.WithBreaker(c)
	c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
}

func TestARequestWaitsForADescriptor(t *testing.T) {
	for name, request := range map[string]string{"GET": peers.Get("/"), "POST": peers.Post("x"), "chunked": peers.PostChunked} {
		t.Run(name, func(t *testing.T) {
			var none atomic.Bool
			none.Store(true)
			change := func(c *proxy.Config) { withBreakerAndBudget(c); fewDescriptors(c, none.Load) }
			proxytest.InMemory(t, peers.Script(peers.OK200), change, func(t *testing.T, m *proxytest.Memory) {
				began := time.Now()
				ended := m.Client().Send(request).Later()
				time.Sleep(8 * time.Second)
				if g := m.Guard(); g.InFlight != 0 {
					t.Errorf("it has a place at the upstream while it waits: %+v", g)
				}
				none.Store(false)
				res, at := ended()
				if res.StatusCode != 200 || at.Sub(began) > 8*time.Second+exchange.MaxDescriptorRetry {
					t.Errorf("%d after %v; %v", res.StatusCode, at.Sub(began), res.Header)
				}
				if o := m.Seen.Outcome(t, 0); o != policy.OutcomeSuccess || m.Seen.Attempts[0] != 1 || m.Seen.Took[0] != 0 {
					t.Errorf("%v after %d attempts, the last of %v", o, m.Seen.Attempts[0], m.Seen.Took)
				}
				untouched(m)
			})
		})
	}
}

// The client's own descriptor is free again after the response.
func TestARequestThatFindsNoDescriptorInItsTime(t *testing.T) {
	dials := 0
	change := func(c *proxy.Config) {
		withBreakerAndBudget(c)
		fewDescriptors(c, func() bool { dials++; return true })
		c.Default.RequestTimeout = 5 * time.Second
	}
	proxytest.InMemory(t, peers.Script(peers.OK200), change, func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		c := m.Client().Send(peers.Get("/"))
		res := c.Want(503, "*")
		if d := time.Since(began); d != 5*time.Second || res.Header.Get("X-Retryproxy-Reason") != "no_descriptors" || !res.Close || res.Header.Get("Retry-After") == "" {
			t.Errorf("after %v: %v", d, res.Header)
		}
		c.WantEnd("")
		if o := m.Seen.Outcome(t, 0); o != policy.GaveUp(policy.ReasonNoDescriptors) || m.Seen.Attempts[0] != 1 {
			t.Errorf("%v after %d attempts", o, m.Seen.Attempts[0])
		}
		if most := int(5*time.Second/exchange.MaxDescriptorRetry) + 10; dials > most {
			t.Errorf("%d dials, at most %d", dials, most)
		}
		untouched(m)
	})
}

// A request that the queue does not admit again after a wait for a descriptor is rejected by the queue.
func TestTheQueueEndsTheWaitForADescriptor(t *testing.T) {
	var none atomic.Bool
	none.Store(true)
	change := func(c *proxy.Config) {
		c.Default.Guard = breaker.Options{ConcurrencyLimit: breaker.ConcurrencyLimitFixed, FixedLimit: 1}
		fewDescriptors(c, none.Load)
	}
	silent := func(c *peers.Conn) {
		c.Head()
		_, _ = c.EndOfInput()
	}
	proxytest.InMemory(t, silent, change, func(t *testing.T, m *proxytest.Memory) {
		ended := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(8*time.Second + 10*time.Millisecond) // its next try is later
		none.Store(false)
		other := m.Client().Send(peers.Get("/other")) // it has the only permit
		res, _ := ended()
		if res.StatusCode != 503 || res.Header.Get("X-Retryproxy-Reason") != "overloaded" || res.Close {
			t.Errorf("%d %v, closes: %v", res.StatusCode, res.Header, res.Close)
		}
		other.Close()
	})
}

func TestLeavingAndADrainEndTheWaitForADescriptor(t *testing.T) {
	change := func(c *proxy.Config) {
		withBreakerAndBudget(c)
		fewDescriptors(c, func() bool { return true })
		c.DrainTimeout = 20 * time.Second
	}
	proxytest.InMemory(t, peers.Script(peers.OK200), change, func(t *testing.T, m *proxytest.Memory) {
		leaver, stays := m.Client().Send(peers.Get("/")), m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		leaver.Close()
		if o := m.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
			t.Errorf("outcome %v", o)
		}
		res, took := m.DrainedAfter(stays)
		peers.WantDraining(t, res, took, 18*time.Second)
		untouched(m)
	})
}

// upstreamNamed returns what is known of the upstream with that URL.
func upstreamNamed(m *proxytest.Memory, url string) proxy.UpstreamStats {
	for _, u := range m.Stats().Upstreams {
		if u.Name == url {
			return u
		}
	}
	m.T.Errorf("no upstream %s", url)
	return proxy.UpstreamStats{}
}

// An idle connection to another upstream is worth less than a request.
func TestADescriptorIsTakenFromAnIdleConnection(t *testing.T) {
	var running atomic.Pointer[proxytest.Memory]
	idle := func() int { return upstreamNamed(running.Load(), "http://other.test:80").Pool.Idle }
	change := func(c *proxy.Config) {
		withBreakerAndBudget(c)
		busy := c.Default
		busy.Name, busy.Match.Path, busy.Upstream.Address = "busy", "/busy", "other.test:80"
		c.Routes = []proxy.Route{busy}
		fewDescriptors(c, func() bool { return idle() > 1 })
	}
	proxytest.InMemory(t, peers.AnswersAfter(time.Millisecond, peers.OK200), change, func(t *testing.T, m *proxytest.Memory) {
		running.Store(m)
		var busy []func() (*http.Response, time.Time)
		for range 3 {
			busy = append(busy, m.Client().Send(peers.Get("/busy")).Later())
		}
		for _, ended := range busy {
			ended()
		}
		synctest.Wait()
		if n := idle(); n != 3 {
			t.Fatalf("%d idle connections", n)
		}
		began := time.Now()
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		if d, n := time.Since(began), idle(); d != time.Millisecond || n != 1 {
			t.Errorf("answered after %v, %d idle connections left", d, n)
		}
	})
}

// A separate process has real limits on descriptors: the upstream's name was not resolved before
// either.
func TestRequestsSurviveAShortageOfDescriptors(t *testing.T) {
	t.Parallel()
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	_, port, _ := net.SplitHostPort(u.Addr().String())
	p, pauses := startFewDescriptors(t, net.JoinHostPort("localhost", port))
	c := p.Dial()
	fmt.Fprint(c, "G") // it is accepted, and has a descriptor
	var crowd []net.Conn
	defer func() { closeAll(crowd) }()
	for range 60 {
		nc, err := net.Dial("tcp", p.Addr)
		if err != nil {
			t.Fatal(err)
		}
		crowd = append(crowd, nc)
	}
	peers.Soon(t, "a pause", func() bool { return pauses() > 0 })
	c.Send(peers.Get("/")[1:])
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	if _, err := c.Reader.Peek(1); err == nil {
		res, body, _ := c.Response("GET")
		t.Fatalf("answered without a descriptor for the upstream: %+v %s", res, body)
	}
	c.Reader = bufio.NewReader(c.Conn)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	closeAll(crowd)
	if res := c.Want(200, "ok"); res.Header.Get("X-Retryproxy-Attempts") != "1" {
		t.Errorf("%v", res.Header)
	}
}

func closeAll(all []net.Conn) {
	for _, nc := range all {
		nc.Close()
	}
}

// A request that found no descriptor was not sent: the next request gets its slot.
func TestARequestWithoutADescriptorUsesNoRateLimitSlot(t *testing.T) {
	var none atomic.Bool
	none.Store(true)
	change := func(c *proxy.Config) {
		peers.Rationed("1/m", 0)(c)
		c.Default.RequestTimeout = time.Second
		fewDescriptors(c, none.Load)
	}
	proxytest.InMemory(t, peers.Script(peers.OK200), change, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(503, "*")
		none.Store(false)
		m.Client().Send(peers.Get("/")).Want(200, "ok")
		m.Client().Send(peers.Get("/")).Want(429, "*")
	})
}
