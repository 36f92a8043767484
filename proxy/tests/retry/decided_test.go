package retry

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// countedWaits is a backoff that counts its waits.
type countedWaits struct{ n *atomic.Int32 }

func (c countedWaits) Wait(backoff.Step, backoff.Rand) time.Duration {
	c.n.Add(1)
	return time.Millisecond
}

// The policy decides once on each attempt, so the jitter of a retry is drawn once.
func TestEachRetryDrawsItsWaitOnce(t *testing.T) {
	var waits atomic.Int32
	u := peers.StartUpstream(t, peers.Script(peers.Bad503Closing, peers.Bad503Closing, peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.Policy.Backoff = countedWaits{&waits} })
	res, _, err := p.Dial().Send(peers.Get("/")).Response("GET")
	if err != nil || res.StatusCode != 200 || waits.Load() != 2 {
		t.Errorf("%v, %v, %d waits for 2 retries", res, err, waits.Load())
	}
}
