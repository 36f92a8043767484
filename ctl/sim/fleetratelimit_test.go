package sim

import (
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// rateLimitQueue holds the requests of a process that wait for a slot of the rate limit,
// and its requests to the shared ledger.
type rateLimitQueue struct {
	limiter *ratelimit.Limiter
	waiting []int32 // waiting clients, in order of arrival
	turn    uint32  // of its timer: changes when the timer is set again
	tick    time.Duration

	requesting bool // a request is in flight or scheduled
	request    ratelimit.LeaseRequest
	grant      ratelimit.LeaseGrant
}

// makeQueues gives every process its share of the rate limit.
func (f *fleet) makeQueues() {
	rate := ratelimit.Rate{Count: int64(f.RateLimit), Per: time.Second}
	f.queues = make([]rateLimitQueue, f.Processes)
	for i := range f.queues {
		q := ratelimit.New(rate, true, f.rand)
		q.Share(f.Processes)
		f.queues[i] = rateLimitQueue{limiter: q}
	}
}

// admit sends a request if there is a slot. Otherwise it queues it, or refuses it if the
// wait would be too long.
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

// wait returns the approximate wait of one more request.
func (r *rateLimitQueue) wait(now time.Duration) time.Duration {
	if len(r.waiting) == 0 {
		if next := r.limiter.Next(now); next != backoff.Forever {
			return next - now
		}
	}
	return r.limiter.Pace() * time.Duration(len(r.waiting)+1)
}

// leaveQueue ends a wait that took too long.
func (f *fleet) leaveQueue(e event) {
	d := &f.queues[e.who/int32(f.Clients)]
	if i := slices.Index(d.waiting, e.who); i >= 0 && f.clients[e.who].waits == e.turn {
		d.waiting = slices.Delete(d.waiting, i, i+1)
		f.respond429(e.who)
		f.arm(e.who / int32(f.Clients))
	}
}

// dequeue sends the requests for which there are slots.
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

// arm sets the timer to the next slot, and schedules a lease request if one is due.
func (f *fleet) arm(i int32) {
	d := &f.queues[i]
	if at := d.limiter.RequestDue(f.now, len(d.waiting)); !d.requesting && at != backoff.Forever {
		d.requesting = true
		f.after(at-f.now, fleetRequestsLease, i, 0)
	}
	if len(d.waiting) == 0 {
		return
	}
	if at := d.limiter.Next(f.now); at != backoff.Forever && (at < d.tick || d.tick <= f.now) {
		d.turn++
		d.tick = at
		f.after(at-f.now, fleetSlotIsFree, i, d.turn)
	}
}

// queueEvent handles an event of a process and the ledger. A request takes half of the
// delay to the ledger, and the response takes the same time back.
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
