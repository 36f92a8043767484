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
func (d *door) watchProbe(probe policy.Permit, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended() {
		return
	}
	d.probes.Go(func() {
		for d.waitFor(lookUpEvery) && d.guard.ProbePending(probe) {
			if d.pool.AddressRemoved(d.dials, addr) {
				d.heed(d.guard.ReplaceProbe(probe, d.elapsed()))
				return
			}
		}
	})
}

// waitFor waits; false: the door has ended.
func (d *door) waitFor(t time.Duration) bool {
	return sleep(d.dials, t)
}
