package proxy

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// lookUpEvery is how often the upstream's name is looked up while a probe hangs.
const lookUpEvery = time.Second

// watchProbe sees whether the upstream moves while a probe hangs at addr, as
// when its pod is started on another machine. A stopped upstream is spared a
// second probe for long, since each is one more request to work off; one that has
// gone never answers, and every new dial would find where it is now.
func (d *admissionQueue) watchProbe(probe policy.Permit, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOver() {
		return
	}
	d.probes.Go(func() {
		for d.waitFor(lookUpEvery) && d.guard.ProbePending(probe) {
			if d.pool.AddressRemoved(d.dialCtx, addr) {
				d.handleSignal(d.guard.ReplaceProbe(probe, d.elapsed()))
				return
			}
		}
	})
}

// waitFor waits; false: the queue has ended.
func (d *admissionQueue) waitFor(t time.Duration) bool {
	return sleep(d.dialCtx, t)
}
