package proxy

import (
	"cmp"
	"hash/maphash"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// BreakerMode says what happens to requests while the breaker of their upstream is not closed.
type BreakerMode uint8

// The modes of a breaker.
const (
	BreakerQueue    BreakerMode = iota // they are queued for up to QueueTimeout
	BreakerFailFast                    // they are answered with 503 at once
)

// QueueOrder says which queued request is served first. If the queue is full, the
// request that has waited longest is dropped in either order.
type QueueOrder uint8

// The choices of QueueOrder.
const (
	QueueNewest QueueOrder = iota // the latest, which has the most time left
	QueueOldest                   // in order of arrival
)

// defaultLimitQueueTimeout is Route.LimitQueueTimeout where that is 0: how long a request waits for a permit at an upstream that is up
// and as busy as it bears. More would be time in which the client could have
// gone elsewhere.
const defaultLimitQueueTimeout = time.Second

// admission is what the queue of an upstream made of an attempt.
type admission uint8

const (
	admitted admission = iota
	notAdmitted
	clientLeftQueue
	drainEndedWait
	deadlinePassed // the deadline of the request has passed
)

// acquirePermit takes a permit for the next attempt and waits for it if the route
// allows. The wait costs no retry and no budget.
func (x *exchange) acquirePermit(now instant) admission {
	if !x.deadline.IsZero() && !now.Before(x.deadline) {
		return deadlinePassed
	}
	d := x.route.upstream.door
	t := x.set.server.since(now)
	x.waiter.request.Unfinished = !x.body.isComplete()
	in := admitted
	if permit, ok := d.guard.AcquireFast(t); ok {
		x.waiter.permit = permit
	} else {
		in = x.acquirePermitSlow(d, t)
	}
	if in == admitted && x.waiter.request.Unfinished {
		x.waiter.permit = d.guard.Sending(x.waiter.permit)
	}
	return in
}

// noteSent tells the Guard if the request of the attempt was sent whole.
func (x *exchange) noteSent() {
	if x.waiter.permit.Sending() && x.progress.Load() == sent {
		d := x.route.upstream.door
		x.waiter.permit = d.guard.Sent(x.waiter.permit, x.set.server.since(x.attemptSent))
	}
}

func (x *exchange) acquirePermitSlow(d *admissionQueue, now time.Duration) admission {
	x.waiter.request.Key = x.urlKey()
	decision, v, ticket := d.acquire(&x.waiter, now, x.mayQueue)
	x.verdict = v
	queued := decision == decisionWait
	if queued {
		began := x.tick()
		var end waitEnd
		decision, end = x.waitInQueue(d, ticket, began, v)
		x.observer.Queued(x.tick().Sub(began))
		x.traceWait(waitHeld, began)
		switch {
		case end == clientLeft:
			x.returnUnusedPermit() // it may have got a permit at the same moment
			return clientLeftQueue
		case decision == decisionWait && end == drainBegan:
			return drainEndedWait
		}
	}
	switch decision {
	case decisionAdmit, decisionProbe:
		return admitted
	case decisionDrained:
		return drainEndedWait
	case decisionDropped:
		holds := v != policy.VerdictAtLimit && x.route.Breaker == BreakerQueue && x.queueTimeLeft() > 0
		if holds && !queued {
			return drainEndedWait // nothing else makes one impatient that may be held
		}
		x.droppedFromQueue = holds
	}
	return notAdmitted
}

// waitInQueue waits for the decision of the queue.
func (x *exchange) waitInQueue(d *admissionQueue, t policy.Ticket, began instant, v policy.Verdict) (int32, waitEnd) {
	wait := cmp.Or(x.route.LimitQueueTimeout, defaultLimitQueueTimeout)
	switch {
	case v == policy.VerdictBreakerOpen:
		wait = x.queueTimeLeft()
		d.logQueued(x.route.QueueTimeout)
	case v == policy.VerdictSuspect && x.route.Breaker == BreakerQueue:
		wait = max(wait, x.queueTimeLeft())
	}
	until := began.Add(wait)
	if !x.deadline.IsZero() && x.deadline.Before(until) {
		until = x.deadline
	}
	x.waiter.expectedAt = 0
	end := x.c.await(until, &x.waiter)
	if decision := x.waiter.decision.Load(); decision != decisionWait {
		return decision, end
	}
	return d.cancelWait(&x.waiter, t), end
}

// mayQueue reports whether the request may wait in the queue.
func (x *exchange) mayQueue(v policy.Verdict) bool {
	if v != policy.VerdictBreakerOpen {
		return true
	}
	return x.route.Breaker == BreakerQueue && x.queueTimeLeft() > 0 && !x.waiter.endedByDrain(x.c.server)
}

// queueTimeLeft returns how much longer the request may be queued, all waits together.
func (x *exchange) queueTimeLeft() time.Duration {
	if x.queueUntil.IsZero() {
		x.queueUntil = x.now().Add(x.route.QueueTimeout)
	}
	return x.queueUntil.Sub(x.now())
}

// returnUnusedPermit returns a permit that was not used.
func (x *exchange) returnUnusedPermit() {
	permit := x.waiter.permit
	x.waiter.permit = policy.Permit{}
	if permit.Taken() {
		d := x.route.upstream.door
		d.handleSignal(d.guard.Release(permit, x.set.server.elapsed(), policy.AttemptEnd{Kind: policy.Unsent}))
	}
}

// releasePermit returns the permit of the attempt and tells the Guard its result.
func (x *exchange) releasePermit(a *policy.Attempt) {
	x.noteSent()
	permit := x.waiter.permit
	if !permit.Taken() {
		return
	}
	x.waiter.permit = policy.Permit{}
	d, t := x.route.upstream.door, x.set.server.since(x.clock)
	e := policy.AttemptEnd{Kind: policy.Responded, Status: guardStatus(a)}
	switch {
	case a.Cause != policy.CauseStatus || e.Status >= 500:
		e = x.attemptEnd(a)
	case d.guard.WantsKey(t):
		e.Key = x.urlKey()
	}
	d.handleSignal(d.guard.Release(permit, t, e))
}

// attemptEnd returns what a failed attempt says about the upstream.
func (x *exchange) attemptEnd(a *policy.Attempt) policy.AttemptEnd {
	return x.attemptEndOf(a, x.dialErr)
}

// attemptEndOf is attemptEnd for an attempt whose dial failed with dialErr, or nil.
func (x *exchange) attemptEndOf(a *policy.Attempt, dialErr *upstream.DialError) policy.AttemptEnd {
	e := policy.AttemptEnd{Status: guardStatus(a), Key: x.urlKey()}
	switch a.Cause {
	case policy.CauseStatus:
		e.Kind = policy.Responded
	case policy.CauseIdleClose, policy.CauseRefusedStream:
		e.Kind = policy.Unsent
	case policy.CauseDial, policy.CauseTLS:
		e.Kind = policy.Reset // connected, and ended before a byte was taken
		if dialErr != nil {
			e.Kind = dialEndKind(dialErr)
		}
	case policy.CauseAttemptTimeout:
		e.Kind = policy.TimedOut
	default:
		e.Kind = policy.Reset
	}
	return e
}

var urlSeed = maphash.MakeSeed()

// urlKey is a hash of method and path, by which the Guard tells URLs apart.
func (x *exchange) urlKey() uint32 {
	var h maphash.Hash
	h.SetSeed(urlSeed)
	_, _ = h.Write(x.req.Method)
	_, _ = h.Write(x.req.Path)
	return uint32(h.Sum64()) | 1
}

// abandonPermit keeps the permit of an attempt that was sent and is no longer awaited,
// because the upstream still works on it. The connection of a probe is still read:
// its late response is the first sign that the upstream is back. The caller of
// abandonPermit closes any other connection.
func (x *exchange) abandonPermit(kind policy.EndKind) {
	x.noteSent()
	permit := x.waiter.permit
	if !permit.Taken() {
		return
	}
	x.waiter.permit = policy.Permit{}
	d, t := x.route.upstream.door, x.set.server.elapsed()
	if !x.sentSome() {
		d.handleSignal(d.guard.Release(permit, t, policy.AttemptEnd{Kind: policy.Unsent}))
		return
	}
	// A request that was not sent whole is never answered.
	listens := permit.Probe() && x.up != nil && x.progress.Load() == sent
	e := policy.AttemptEnd{Kind: kind, Key: x.urlKey(), Closed: !listens}
	late, signal := d.guard.Abandon(permit, t, e)
	if listens {
		x.stopPump()
		up := x.up
		x.giveUpBuffer()
		x.up = nil
		d.awaitLateResponse(up, late)
	}
	d.handleSignal(signal)
}

// timeoutEndKind returns how an attempt ended that timed out. If the time was the client's
// own, the attempt counts as abandoned: clients with short deadlines must not open the
// breaker of an upstream that is as fast as ever for others.
func (x *exchange) timeoutEndKind() policy.EndKind {
	if w := &x.clientDeadline; w.Given && !x.now().Before(x.began.Add(x.route.ownShare(w.Timeout))) {
		return policy.Abandoned
	}
	return policy.TimedOut
}

// sentSome reports whether the upstream may have received a byte of the attempt.
func (x *exchange) sentSome() bool {
	return x.attemptOpen() && (x.fault.stalled || x.up != nil && x.upGotBytes)
}

// retryWaitsInQueue reports whether a retry waits in the queue instead of in backoff,
// because the breaker of the upstream is not closed.
func (x *exchange) retryWaitsInQueue() bool {
	return x.route.Breaker == BreakerQueue && x.route.upstream.door.guard.State().Breaker != policy.BreakerClosed
}
