package proxy

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
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
	u := startUpstream(t, script(lastly503, lastly503, ok200))
	p := startProxy(t, u, func(c *Config) { c.Default.Policy.Backoff = countedWaits{&waits} })
	res, _, err := p.dial().send(get("/")).response("GET")
	if err != nil || res.StatusCode != 200 || waits.Load() != 2 {
		t.Errorf("%v, %v, %d waits for 2 retries", res, err, waits.Load())
	}
}
