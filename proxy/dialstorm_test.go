package proxy

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
)

// An upstream that accepts connections only to end them, or to send stray bytes, gets one
// connection per attempt. A freshly dialled connection that is found closed is a failed attempt,
// not a stale pool.
func TestAnUpstreamThatEndsNewConnectionsIsDialledOncePerAttempt(t *testing.T) {
	for name, end := range map[string]func(c *upConn){
		"end":    func(*upConn) {},
		"reset":  func(c *upConn) { c.reset() },
		"banner": func(c *upConn) { c.say("SSH-2.0-x\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			const requests = 40
			u := startUpstream(t, end)
			p := startProxy(t, u, func(c *Config) { c.Default.Policy.MaxRetries = 1 })
			for i := range requests {
				p.dial().send(get("/")).want(502, "*")
				p.wantOutcome(i, policy.GaveUp(policy.ReasonRetriesExhausted))
			}
			// One that the accept loop has not counted yet is missing at most.
			if n := u.connections(); n > 2*requests {
				t.Errorf("%d connections for %d attempts", n, 2*requests)
			}
		})
	}
}

// One connection that the upstream accepted and ended, as a worker does that is being replaced, is
// no evidence that no connection can be made.
func TestOneConnectionThatEndsAtOnceDoesNotOpenTheBreaker(t *testing.T) {
	for range 20 { // whether the end is seen before the write or after it is a matter of microseconds
		u := startUpstream(t, func(c *upConn) {
			if c.n > 1 {
				script(ok200)(c)
			}
		})
		p := startProxy(t, u, func(c *Config) {
			c.Default.Guard = breaker.Options{}
			c.Default.FailFast = true
		})
		p.dial().send(get("/")).want(200, "ok")
		if n := p.Stats().Upstreams[0].Guard.Opened[breaker.OpenedByDial]; n != 0 {
			t.Fatalf("the breaker is open %d times", n)
		}
	}
}
