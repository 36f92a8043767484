package proxy

import (
	"cmp"
	"hash/maphash"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Outage says what becomes of requests while their upstream's breaker is not closed.
type BreakerMode uint8

// The choices of Outage.
const (
	BreakerQueue    BreakerMode = iota // they wait, up to HoldTimeout
	BreakerFailFast                    // they get 503 at once
)

// QueueOrder says which of the queued requests is served first. When the queue is
// full, the one that waited longest is dropped, whatever the order.
type QueueOrder uint8

// The choices of QueueOrder.
const (
	QueueNewest QueueOrder = iota // who came last has most of its patience left
	QueueOldest                   // in the order in which they came
)

// queueTime is Route.PermitTimeout where that is 0: how long a request waits for a place at an upstream that is up
// and as busy as it bears. More would be time in which the client could have
// gone elsewhere.
const queueTime = time.Second

// admission is what the door of an upstream made of an attempt.
type admission uint8

const (
	admitted admission = iota
	turnedAway
	leftWaiting
	drainedWaiting
	tooLate // the request's time is over
)

// admit takes a place for the next attempt, waiting for it where the route
// allows. Waiting here costs no retry and no budget.
func (x *exchange) admit(now instant) admission {
	if !x.deadline.IsZero() && !now.Before(x.deadline) {
		return tooLate
	}
	d := x.route.upstream.door
	t := x.set.server.since(now)
	x.waiter.asks.Unfinished = !x.body.isHere()
	in := admitted
	if place, ok := d.guard.AcquireFast(t); ok {
		x.waiter.place = place
	} else {
		in = x.admitSlowly(d, t)
	}
	if in == admitted && x.waiter.asks.Unfinished {
		x.waiter.place = d.guard.Sending(x.waiter.place)
	}
	return in
}

// noteSent tells the Guard that the attempt's request was sent whole, when it was.
func (x *exchange) noteSent() {
	if x.waiter.place.Sending() && x.progress.Load() == sent {
		d := x.route.upstream.door
		x.waiter.place = d.guard.Sent(x.waiter.place, x.set.server.since(x.attemptSent))
	}
}

func (x *exchange) admitSlowly(d *door, now time.Duration) admission {
	x.waiter.asks.Key = x.urlKey()
	word, v, ticket := d.enter(&x.waiter, now, x.patience)
	x.turnedBy = v
	stood := word == wordWait
	if stood {
		began := x.tick()
		var end waitEnd
		word, end = x.standInLine(d, ticket, began, v)
		x.observer.Queued(x.tick().Sub(began))
		x.traceWait(waitHeld, began)
		switch {
		case end == clientLeft:
			x.unplace() // it may have been let in at the same moment
			return leftWaiting
		case word == wordWait && end == drainBegan:
			return drainedWaiting
		}
	}
	switch word {
	case wordGo, wordProbe:
		return admitted
	case wordDrained:
		return drainedWaiting
	case wordDropped:
		holds := v != policy.VerdictAtLimit && x.route.BreakerMode == BreakerQueue && x.holdLeft() > 0
		if holds && !stood {
			return drainedWaiting // nothing else makes one impatient that may be held
		}
		x.dropped = holds
	}
	return turnedAway
}

// standInLine waits for the door's word.
func (x *exchange) standInLine(d *door, t policy.Ticket, began instant, v policy.Verdict) (int32, waitEnd) {
	wait := cmp.Or(x.route.PermitTimeout, queueTime)
	switch {
	case v == policy.VerdictBreakerOpen:
		wait = x.holdLeft()
		d.tellQueued(x.route.QueueTimeout)
	case v == policy.VerdictSuspect && x.route.BreakerMode == BreakerQueue:
		wait = max(wait, x.holdLeft())
	}
	until := began.Add(wait)
	if !x.deadline.IsZero() && x.deadline.Before(until) {
		until = x.deadline
	}
	x.waiter.turn = 0
	end := x.c.await(until, &x.waiter)
	if word := x.waiter.word.Load(); word != wordWait {
		return word, end
	}
	return d.quit(&x.waiter, t), end
}

// patience says whether the exchange wants to stand in line.
func (x *exchange) patience(v policy.Verdict) bool {
	if v != policy.VerdictBreakerOpen {
		return true
	}
	return x.route.BreakerMode == BreakerQueue && x.holdLeft() > 0 && !x.waiter.drained(x.c.server)
}

// holdLeft is how much longer the request may be held, all holds together.
func (x *exchange) holdLeft() time.Duration {
	if x.holdUntil.IsZero() {
		x.holdUntil = x.now().Add(x.route.QueueTimeout)
	}
	return x.holdUntil.Sub(x.now())
}

// unplace gives back a place that was not used.
func (x *exchange) unplace() {
	place := x.waiter.place
	x.waiter.place = policy.Permit{}
	if place.Taken() {
		d := x.route.upstream.door
		d.heed(d.guard.Release(place, x.set.server.elapsed(), policy.AttemptEnd{Kind: policy.Unsent}))
	}
}

// vacate gives the attempt's place back and tells the Guard what became of it.
func (x *exchange) vacate(a *policy.Attempt) {
	x.noteSent()
	place := x.waiter.place
	if !place.Taken() {
		return
	}
	x.waiter.place = policy.Permit{}
	d, t := x.route.upstream.door, x.set.server.since(x.clock)
	e := policy.AttemptEnd{Kind: policy.Responded, Status: guardStatus(a)}
	switch {
	case a.Cause != policy.CauseStatus || e.Status >= 500:
		e = x.ending(a)
	case d.guard.WantsKey(t):
		e.Key = x.urlKey()
	}
	d.heed(d.guard.Release(place, t, e))
}

// ending is what a failed attempt tells about the upstream.
func (x *exchange) ending(a *policy.Attempt) policy.AttemptEnd { return x.endingOf(a, x.dialErr) }

// endingOf is ending for an attempt whose dial, where that failed, gave dialErr.
func (x *exchange) endingOf(a *policy.Attempt, dialErr *upstream.DialError) policy.AttemptEnd {
	e := policy.AttemptEnd{Status: guardStatus(a), Key: x.urlKey()}
	switch a.Cause {
	case policy.CauseStatus:
		e.Kind = policy.Responded
	case policy.CauseIdleClose, policy.CauseRefusedStream:
		e.Kind = policy.Unsent
	case policy.CauseDial, policy.CauseTLS:
		e.Kind = policy.Reset // connected, and ended before a byte was taken
		if dialErr != nil {
			e.Kind = dialEnding(dialErr)
		}
	case policy.CauseAttemptTimeout:
		e.Kind = policy.TimedOut
	default:
		e.Kind = policy.Reset
	}
	return e
}

var urlSeed = maphash.MakeSeed()

// urlKey tells URLs apart for the Guard.
func (x *exchange) urlKey() uint32 {
	var h maphash.Hash
	h.SetSeed(urlSeed)
	_, _ = h.Write(x.req.Method)
	_, _ = h.Write(x.req.Path)
	return uint32(h.Sum64()) | 1
}

// desert keeps the place of an attempt that was sent and is no longer waited
// for: the upstream still works on it. The connection of a probe is read on,
// since its late response is the first sign that the upstream is back; any other is
// closed by the caller of desert.
func (x *exchange) desert(kind policy.EndKind) {
	x.noteSent()
	place := x.waiter.place
	if !place.Taken() {
		return
	}
	x.waiter.place = policy.Permit{}
	d, t := x.route.upstream.door, x.set.server.elapsed()
	if !x.sentSome() {
		d.heed(d.guard.Release(place, t, policy.AttemptEnd{Kind: policy.Unsent}))
		return
	}
	// A request that was not sent whole is never answered.
	listens := place.Probe() && x.up != nil && x.progress.Load() == sent
	e := policy.AttemptEnd{Kind: kind, Key: x.urlKey(), Closed: !listens}
	late, signal := d.guard.Abandon(place, t, e)
	if listens {
		x.stopPump()
		up := x.up
		x.giveUpBuffer()
		x.up = nil
		d.waitForLate(up, late)
	}
	d.heed(signal)
}

// overtime is how an attempt ended whose time is over. Where the time was its
// client's own it is as if the client had left: hurried clients must not close
// the breaker of an upstream that is as quick as ever for others.
func (x *exchange) overtime() policy.EndKind {
	if w := &x.clientWaits; w.Given && !x.now().Before(x.began.Add(x.route.ownShare(w.Timeout))) {
		return policy.Abandoned
	}
	return policy.TimedOut
}

// sentSome says whether the upstream may have a byte of the attempt.
func (x *exchange) sentSome() bool {
	return x.attemptOpen() && (x.fault.stalled || x.up != nil && x.upAsked)
}

// gateShut says whether the upstream's breaker is not closed, so that a retry will
// wait at the door instead of in backoff.
func (x *exchange) breakerShut() bool {
	return x.route.BreakerMode == BreakerQueue && x.route.upstream.door.guard.State().Breaker != policy.BreakerClosed
}
