package limits

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/trace"
)

// faulty is an observer that fails when a retry is counted.
type faulty struct{ *peers.Recorder }

func (faulty) Retry(policy.Reason) { panic("a fault of the test") }

func TestAPanicEndsItsOwnRequestOnly(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		seen := c.Observe("")().(*peers.Recorder)
		c.Observe = peers.Always(faulty{seen})
	})
	other := p.Dial()
	c := p.Dial().Send(peers.Get("/"))
	if s, err := c.Rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
	other.Send(peers.Get("/")).Want(200, "ok")
	p.WantFaults(1)
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
	u := peers.StartUpstream(t, func(c *peers.Conn) { c.Head(); c.Head() })
	p := proxytest.Start(t, u, nil)
	near, far := net.Pipe()
	done := make(chan struct{})
	go func() { defer close(done); p.ServeConn(&faultyConn{Conn: far}, "") }()
	_, _ = io.WriteString(near, "PUT / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if b, err := io.ReadAll(near); err != nil || len(b) != 0 {
		t.Errorf("the faulty request got %q, %v", b, err)
	}
	<-done
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeClientGone {
		t.Errorf("outcome %v", o)
	}
	p.WantFaults(1)
}

// hedgeTracer panics when a hedge is about to be sent.
type hedgeTracer struct{ peers.AttemptsTraced }

func (t *hedgeTracer) Request(*trace.Request) trace.RequestSpan { return t }

func (t *hedgeTracer) Attempt(a *trace.Attempt) trace.AttemptSpan {
	if a.Hedge {
		panic("a fault of the test")
	}
	return nil
}

// wantFault sends the first request, which must end by a fault that is counted.
func wantFault(p *proxytest.Proxy, t *testing.T) {
	t.Helper()
	if s, err := p.Dial().Send(peers.Get("/")).Rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	if o := p.Seen.Outcome(t, 0); o != policy.OutcomeResponseBroken {
		t.Errorf("outcome %v", o)
	}
	p.WantFaults(1)
}

// Nobody waits for a hedge that was not sent.
func TestAPanicBeforeAHedgeIsSentEndsItsOwnRequestOnly(t *testing.T) {
	p := proxytest.Start(t, peers.StartUpstream(t, peers.NeverResponds), func(c *proxy.Config) {
		peers.Hedged(t)(c)
		c.Tracer = new(hedgeTracer)
	})
	wantFault(p, t)
}

// A panic before the observer is known ends only its own request; no observer is called.
func TestAPanicBeforeThereIsAnObserverEndsItsOwnRequestOnly(t *testing.T) {
	var panicked atomic.Bool
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.OK200)), func(c *proxy.Config) {
		seen := c.Observe("")
		c.Observe = func(string) func() proxy.Observer {
			return func() proxy.Observer {
				if !panicked.Swap(true) {
					panic("a fault of the test")
				}
				return seen()
			}
		}
	})
	if s, err := p.Dial().Send(peers.Get("/")).Rest(); s != "" || err == nil {
		t.Errorf("the faulty request got %q, %v", s, err)
	}
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	p.WantFaults(1)
	if n := p.Seen.Requests(); n != 1 {
		t.Errorf("%d requests were told of, want 1", n)
	}
}

// A dial that panics ends its own request only. It keeps no permit, and no other request waits for
// it.
func TestAPanicInADialEndsItsOwnRequestOnly(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) {
			addr := peers.HTTP2Server(t, nil, true, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
			var panicked atomic.Bool
			p := proxytest.StartTo(t, scheme+"://"+addr, func(c *proxy.Config) {
				peers.WithBreaker(c)
				c.Default.Guard.ConcurrencyLimit = 1
				c.Default.Upstream.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !panicked.Swap(true) {
						panic("a fault of the test")
					}
					return new(net.Dialer).DialContext(ctx, network, addr)
				}
			})
			wantFault(p, t)
			if s := p.Stats().Upstreams[0]; s.Guard.InFlight != 0 || s.Guard.Breaker != breaker.Closed || s.Pool.Dialing != 0 || s.Pool.Active != 0 {
				t.Errorf("after the panic: %+v, %+v", s.Guard, s.Pool)
			}
			p.Dial().Send(peers.Get("/")).Want(200, "ok")
		})
	}
}
