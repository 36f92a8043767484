package proxy

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy"
)

// faulty is an observer that fails when a retry is counted.
type faulty struct{ *recorder }

func (faulty) Retry(policy.Reason) { panic("a fault of the test") }

func TestAFaultEndsItsOwnRequestOnly(t *testing.T) {
	u := startUpstream(t, script(bad503, ok200))
	p := startProxy(t, u, func(c *Config) {
		seen := c.Observe("").(*recorder)
		c.Observe = func(string) Observer { return faulty{seen} }
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
	if n := p.faults.Swap(0); n != 1 {
		t.Errorf("%d faults counted, want 1", n)
	}
}
