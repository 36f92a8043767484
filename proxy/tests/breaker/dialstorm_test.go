package breaker

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// An upstream that accepts connections only to end them, or to send stray bytes, gets one
// connection per attempt. A freshly dialled connection that is found closed is a failed attempt,
// not a stale pool.
func TestAnUpstreamThatEndsNewConnectionsIsDialledOncePerAttempt(t *testing.T) {
	for name, end := range map[string]func(c *peers.Conn){
		"end":    func(*peers.Conn) {},
		"reset":  func(c *peers.Conn) { c.Reset() },
		"banner": func(c *peers.Conn) { c.Say("SSH-2.0-x\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			const requests = 40
			u := peers.StartUpstream(t, end)
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 1 })
			for i := range requests {
				p.Dial().Send(peers.Get("/")).Want(502, "*")
				p.WantOutcome(i, policy.GaveUp(policy.ReasonRetriesExhausted))
			}
			// One that the accept loop has not counted yet is missing at most.
			if n := u.Connections(); n > 2*requests {
				t.Errorf("%d connections for %d attempts", n, 2*requests)
			}
		})
	}
}

// One connection that the upstream accepted and ended, as a worker does that is being replaced, is
// no evidence that no connection can be made.
func TestOneConnectionThatEndsAtOnceDoesNotOpenTheBreaker(t *testing.T) {
	for range 20 { // whether the end is seen before the write or after it is a matter of microseconds
		u := peers.StartUpstream(t, func(c *peers.Conn) {
			if c.N > 1 {
				peers.Script(peers.OK200)(c)
			}
		})
		p := proxytest.Start(t, u, func(c *proxy.Config) {
			c.Default.Guard = breaker.Options{}
			c.Default.FailFast = true
		})
		p.Dial().Send(peers.Get("/")).Want(200, "ok")
		if n := p.Stats().Upstreams[0].Guard.Opened[breaker.OpenedByDial]; n != 0 {
			t.Fatalf("the breaker is open %d times", n)
		}
	}
}
