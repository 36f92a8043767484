package admission

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
)

// lookUpEvery is how often the upstream's name is resolved while a probe hangs.
const lookUpEvery = time.Second

// WatchProbe detects that the upstream moves while a probe hangs at addr, as when its pod starts
// on another machine. A stopped upstream gets no second probe for a long time, because each probe
// is one more request to process. A vanished upstream never responds, and a new dial would reach
// its new address.
func (d *Queue) WatchProbe(probe breaker.Permit, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isOver() {
		return
	}
	d.probes.Go(func() {
		for d.waitFor(lookUpEvery) && d.Guard.ProbePending(probe) {
			if d.pool.AddressRemoved(d.dialCtx, addr) {
				d.HandleSignal(d.Guard.ReplaceProbe(probe, d.elapsed()))
				return
			}
		}
	})
}

// waitFor waits for t. It reports false if the queue ended.
func (d *Queue) waitFor(t time.Duration) bool {
	return sleep(d.dialCtx, t)
}
