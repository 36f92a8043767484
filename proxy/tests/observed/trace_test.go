package observed

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// The retry reason of an untraced request does not appear in the next request's trace.
func TestAFirstAttemptIsTracedAsNoRetry(t *testing.T) {
	var first proxy.Config
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200)), func(c *proxy.Config) { first = *c })
	c := p.Dial().Send(peers.Get("/"))
	c.Want(200, "ok")
	traced, next := &peers.AttemptsTraced{}, first
	next.Tracer = traced
	if err := p.Reload(&next); err != nil {
		t.Fatal(err)
	}
	c.Send(peers.Get("/")).Want(200, "ok")
	traced.Mu.Lock()
	defer traced.Mu.Unlock()
	if len(traced.All) != 1 || traced.All[0].Why != policy.ReasonNone || traced.All[0].Wait != 0 {
		t.Errorf("traced: %+v", traced.All)
	}
}
