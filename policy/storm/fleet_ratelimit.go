package storm

import (
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// rateLimitQueue is where the requests of a process wait for a slot of the rate limit, and its
// questions to the ledger that all share.
type rateLimitQueue struct {
	limiter *policy.RateLimiter
	waiting []int32 // clients who wait, in the order in which they came
	turn    uint32  // of its timer: moves on when that is set anew
	tick    time.Duration

	requesting bool // a question is in flight, or is going to be at its time
	request    policy.RateLimitLeaseRequest
	grant      policy.RateLimitLeaseGrant
}

// makeQueues gives every process its part of the rate limit.
func (f *fleet) makeQueues() {
	rate := policy.RateLimit{Attempts: int(f.RateLimit), Per: time.Second}
	f.queues = make([]rateLimitQueue, f.Processes)
	for i := range f.queues {
		q := policy.NewRateLimiter(rate, true, f.rand)
		q.Share(f.Processes)
		f.queues[i] = rateLimitQueue{limiter: q}
	}
}

// admit sends a request if there is a slot for it, and else lets it wait, or
// turns it away when that takes too long.
func (f *fleet) admit(c int32) {
	i := c / int32(f.Clients)
	d := &f.queues[i]
	d.limiter.Arrive()
	if len(d.waiting) == 0 && d.limiter.Take(f.now) {
		f.send(c)
		f.arm(i)
		return
	}
	if d.wait(f.now) > min(f.left(c), f.RateLimitWait) {
		f.respond429(c)
		return
	}
	d.waiting = append(d.waiting, c)
	f.clients[c].waits++
	f.clients[c].since = f.now
	f.after(min(f.left(c), f.RateLimitWait), fleetQueueTimeout, c, f.clients[c].waits)
	f.arm(i)
}

// wait is about how long one more has to wait.
func (d *rateLimitQueue) wait(now time.Duration) time.Duration {
	if len(d.waiting) == 0 {
		if next := d.limiter.Next(now); next != policy.Forever {
			return next - now
		}
	}
	return d.limiter.Pace() * time.Duration(len(d.waiting)+1)
}

// leaveQueue is the end of a wait that took too long.
func (f *fleet) leaveQueue(e event) {
	d := &f.queues[e.who/int32(f.Clients)]
	if i := slices.Index(d.waiting, e.who); i >= 0 && f.clients[e.who].waits == e.turn {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		f.respond429(e.who)
		f.arm(e.who / int32(f.Clients))
	}
}

// dequeue sends those for whom there are slots.
func (f *fleet) dequeue(i int32) {
	d := &f.queues[i]
	for len(d.waiting) > 0 && d.limiter.Take(f.now) {
		c := d.waiting[0]
		d.waiting = d.waiting[1:]
		f.result.Waited = max(f.result.Waited, f.now-f.clients[c].since)
		f.send(c)
	}
	f.arm(i)
}

// arm sets the timer to the next slot, and has one asked for.
func (f *fleet) arm(i int32) {
	d := &f.queues[i]
	if at := d.limiter.RequestDue(f.now, len(d.waiting)); !d.requesting && at != policy.Forever {
		d.requesting = true
		f.after(at-f.now, fleetRequestsLease, i, 0)
	}
	if len(d.waiting) == 0 {
		return
	}
	if at := d.limiter.Next(f.now); at != policy.Forever && (at < d.tick || d.tick <= f.now) {
		d.turn++
		d.tick = at
		f.after(at-f.now, fleetSlotIsFree, i, d.turn)
	}
}

// queueEvent is one of a process and the ledger. A question takes half of the
// delay to the ledger, and the response as long back.
func (f *fleet) queueEvent(e event) {
	if e.kind == fleetQueueTimeout {
		f.leaveQueue(e)
		return
	}
	d := &f.queues[e.who]
	switch e.kind {
	case fleetSlotIsFree:
		if d.turn == e.turn {
			d.tick = 0
			f.dequeue(e.who)
		}
	case fleetRequestsLease:
		d.request = d.limiter.MakeRequest(f.now, len(d.waiting))
		f.after(f.Delay/2, fleetLeases, e.who, 0)
	case fleetLeases:
		f.result.LeaseRequests++
		d.grant = f.ledger.Lease(f.now, d.request)
		f.after(f.Delay/2, fleetIsGranted, e.who, 0)
	case fleetIsGranted:
		d.requesting = false
		d.limiter.ApplyGrant(f.now, d.grant)
		f.dequeue(e.who)
	}
}
