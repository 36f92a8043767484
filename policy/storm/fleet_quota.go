package storm

import (
	"slices"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// door is where the requests of a process wait for a slot of the quota, and its
// questions to the ledger that all share.
type door struct {
	quota *policy.Quota
	line  []int32 // callers who wait, in the order in which they came
	turn  uint32  // of its timer: moves on when that is set anew
	tick  time.Duration

	asking bool // a question is under way, or is going to be at its time
	ask    policy.QuotaAsk
	grant  policy.QuotaGrant
}

// openDoors gives every process its part of the quota.
func (f *fleet) openDoors() {
	rate := policy.QuotaRate{Attempts: int(f.Quota), Per: time.Second}
	f.doors = make([]door, f.Processes)
	for i := range f.doors {
		q := policy.NewQuota(rate, true, f.rand)
		q.Share(f.Processes)
		f.doors[i] = door{quota: q}
	}
}

// admit sends a request if there is a slot for it, and else lets it wait, or
// turns it away when that takes too long.
func (f *fleet) admit(c int32) {
	i := c / int32(f.Callers)
	d := &f.doors[i]
	d.quota.Arrive()
	if len(d.line) == 0 && d.quota.Take(f.now) {
		f.send(c)
		f.arm(i)
		return
	}
	if d.wait(f.now) > min(f.left(c), f.QuotaWait) {
		f.turn(c)
		return
	}
	d.line = append(d.line, c)
	f.callers[c].waits++
	f.callers[c].since = f.now
	f.after(min(f.left(c), f.QuotaWait), fleetLeavesDoor, c, f.callers[c].waits)
	f.arm(i)
}

// wait is about how long one more has to wait.
func (d *door) wait(now time.Duration) time.Duration {
	if len(d.line) == 0 {
		if next := d.quota.Next(now); next != policy.Forever {
			return next - now
		}
	}
	return d.quota.Pace() * time.Duration(len(d.line)+1)
}

// leaveDoor is the end of a wait that took too long.
func (f *fleet) leaveDoor(e event) {
	d := &f.doors[e.who/int32(f.Callers)]
	if i := slices.Index(d.line, e.who); i >= 0 && f.callers[e.who].waits == e.turn {
		d.line = slices.Delete(d.line, i, i+1)
		f.turn(e.who)
		f.arm(e.who / int32(f.Callers))
	}
}

// letIn sends those for whom there are slots.
func (f *fleet) letIn(i int32) {
	d := &f.doors[i]
	for len(d.line) > 0 && d.quota.Take(f.now) {
		c := d.line[0]
		d.line = d.line[1:]
		f.result.Waited = max(f.result.Waited, f.now-f.callers[c].since)
		f.send(c)
	}
	f.arm(i)
}

// arm sets the timer to the next slot, and has one asked for.
func (f *fleet) arm(i int32) {
	d := &f.doors[i]
	if at := d.quota.Due(f.now, len(d.line)); !d.asking && at != policy.Forever {
		d.asking = true
		f.after(at-f.now, fleetAsksLedger, i, 0)
	}
	if len(d.line) == 0 {
		return
	}
	if at := d.quota.Next(f.now); at != policy.Forever && (at < d.tick || d.tick <= f.now) {
		d.turn++
		d.tick = at
		f.after(at-f.now, fleetSlotIsFree, i, d.turn)
	}
}

// doorEvent is one of a process and the ledger. A question takes half of the
// delay to the ledger, and the answer as long back.
func (f *fleet) doorEvent(e event) {
	if e.kind == fleetLeavesDoor {
		f.leaveDoor(e)
		return
	}
	d := &f.doors[e.who]
	switch e.kind {
	case fleetSlotIsFree:
		if d.turn == e.turn {
			d.tick = 0
			f.letIn(e.who)
		}
	case fleetAsksLedger:
		d.ask = d.quota.Ask(f.now, len(d.line))
		f.after(f.Delay/2, fleetLeases, e.who, 0)
	case fleetLeases:
		f.result.Asked++
		d.grant = f.ledger.Lease(f.now, d.ask)
		f.after(f.Delay/2, fleetIsGranted, e.who, 0)
	case fleetIsGranted:
		d.asking = false
		d.quota.Grant(f.now, d.grant)
		f.letIn(e.who)
	}
}
