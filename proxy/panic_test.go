package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// faulty is an observer that fails when a retry is counted.
type faulty struct{ *recorder }

func (faulty) Retry(policy.Reason) { panic("a fault of the test") }

func TestAPanicEndsItsOwnRequestOnly(t *testing.T) {
	u := startUpstream(t, script(bad503, ok200))
	p := startProxy(t, u, func(c *Config) {
		seen := c.Observe("")().(*recorder)
		c.Observe = always(faulty{seen})
	})
	other := p.dial()
	c := p.dial().send(get("/"))
	if s, err := c.rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
	other.send(get("/")).want(200, "ok")
	p.wantFaults(1)
}

// faultyConn fails at its second read, which is the pump's where a client
// waits for 100.
type faultyConn struct {
	net.Conn
	reads int
}

func (c *faultyConn) Read(p []byte) (int, error) {
	if c.reads++; c.reads == 2 {
		panic("a fault of the test")
	}
	return c.Conn.Read(p)
}

func TestAPanicOfThePumpEndsItsOwnRequestOnly(t *testing.T) {
	u := startUpstream(t, func(c *upConn) { c.head(); c.head() })
	p := startProxy(t, u, nil)
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); p.ServeConn(&faultyConn{Conn: far}, "") }()
	_, _ = io.WriteString(near, "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if b, err := io.ReadAll(near); err != nil || len(b) != 0 {
		t.Errorf("the faulty request got %q, %v", b, err)
	}
	<-done
	if o := p.seen.outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
	p.wantFaults(1)
}

// hedgeTracer panics when a hedge is about to be sent.
type hedgeTracer struct{ attemptsTraced }

func (t *hedgeTracer) Request(*trace.Request) trace.RequestSpan { return t }

func (t *hedgeTracer) Attempt(a *trace.Attempt) trace.AttemptSpan {
	if a.Hedge {
		panic("a fault of the test")
	}
	return nil
}

// wantFault sends the first request, which must end by a fault that is counted.
func (p *testProxy) wantFault(t *testing.T) {
	t.Helper()
	if s, err := p.dial().send(get("/")).rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	if o := p.seen.outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
	p.wantFaults(1)
}

// Nobody waits for a hedge that was not sent.
func TestAPanicBeforeAHedgeIsSentEndsItsOwnRequestOnly(t *testing.T) {
	p := startProxy(t, startUpstream(t, neverResponds), func(c *Config) {
		hedged(t)(c)
		c.Tracer = new(hedgeTracer)
	})
	p.wantFault(t)
}

// A panic before the observer is known ends only its own request; no observer is called.
func TestAPanicBeforeThereIsAnObserverEndsItsOwnRequestOnly(t *testing.T) {
	var panicked atomic.Bool
	p := startProxy(t, startUpstream(t, script(ok200)), func(c *Config) {
		seen := c.Observe("")
		c.Observe = func(string) func() Observer {
			return func() Observer {
				if !panicked.Swap(true) {
					panic("a fault of the test")
				}
				return seen()
			}
		}
	})
	if s, err := p.dial().send(get("/")).rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	p.dial().send(get("/")).want(200, "ok")
	p.wantFaults(1)
	if n := p.seen.requests(); n != 1 {
		t.Errorf("%d requests were told of, want 1", n)
	}
}

// A dial that panics ends its own request only. It keeps no permit, and no other request waits for
// it.
func TestAPanicInADialEndsItsOwnRequestOnly(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			addr := http2Server(t, nil, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
			var panicked atomic.Bool
			p := startProxyTo(t, scheme+"://"+addr, func(c *Config) {
				withBreaker(c)
				c.Default.Guard.ConcurrencyLimit = 1
				c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !panicked.Swap(true) {
						panic("a fault of the test")
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			p.wantFault(t)
			if s := p.Stats().Upstreams[0]; s.Guard.InFlight != 0 || s.Guard.Breaker != breaker.Closed || s.Pool.Dialing != 0 || s.Pool.Active != 0 {
				t.Errorf("after the panic: %+v, %+v", s.Guard, s.Pool)
			}
			p.dial().send(get("/")).want(200, "ok")
		})
	}
}
