package admission

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Ticket is the right to send one attempt to an upstream: the permit of its circuit breaker and its
// concurrency limit, the slot of its rate limit, and the token of the retry budget. Admitter.Admit
// fills it for an attempt and Admitter.AdmitHedge for a hedge. The ticket of a retry begins with its
// token (Reserve), because that is asked for before the wait.
//
// Whoever has a ticket settles it exactly once: with Release when the attempt has a result, with Abandon
// when nobody waits for one any longer, and with Return when the attempt was not sent. In builds that
// poison, a second settlement panics, and so does the end of a ticket that was not settled, with the
// place where it was taken. The zero Ticket is settled. It is not safe for concurrent use.
type Ticket struct {
	terms    *Terms // nil: it was never begun
	of       *Admitter
	permit   breaker.Permit
	slot     *RateLimitQueue // a slot of it was taken; nil: none
	use      *Use            // of slot; nil: it does not count tokens
	hasToken bool            // of the retry budget
	open     bool            // begun and not settled
	watch    watch
}

// Reserve begins the ticket of a retry with the token of the retry budget that it took.
func (t *Ticket) Reserve(terms *Terms) {
	t.begin(terms)
	t.hasToken = true
}

// begin opens the ticket.
func (t *Ticket) begin(terms *Terms) {
	t.watch.begin(t.open)
	*t = Ticket{terms: terms, open: true, watch: t.watch}
}

func (t *Ticket) queue() *Queue { return t.terms.Queue }

// takeSlot gives the ticket a slot of q, with what it takes of limits that count tokens.
func (t *Ticket) takeSlot(q *RateLimitQueue, u *Use) { t.slot, t.use = q, u }

// sending records that the request is not sent whole while its attempt begins.
func (t *Ticket) sending() { t.permit = t.queue().Guard.Sending(t.permit) }

// IsOpen reports whether the ticket was begun and not settled.
func (t *Ticket) IsOpen() bool { return t.open }

// IsProbe reports whether its attempt is the probe of an upstream whose circuit breaker is not closed. It
// needs a connection of its own.
func (t *Ticket) IsProbe() bool { return t.permit.Probe() }

// Connected records the connection to addr of the attempt. The endpoint of a probe is watched.
func (t *Ticket) Connected(addr string, reused bool) {
	if t.IsProbe() && !reused {
		t.queue().WatchProbe(t.permit, addr)
	}
}

// SentWhole records that the request was sent whole at the time at. It may be called more than once.
func (t *Ticket) SentWhole(at clock.Instant) {
	if !t.permit.Sending() {
		return
	}
	p, signal := t.queue().Guard.Sent(t.permit, at.Sub(clock.Start))
	t.permit = p
	t.queue().HandleSignal(signal)
}

// Release settles the ticket at the time now: its attempt came to res and had got as far as p. cutShort
// means that the client's own deadline ended the dial.
func (t *Ticket) Release(now clock.Instant, res *policy.Result, p attempt.Progress, cutShort bool) {
	if p.Sent {
		t.SentWhole(p.SentAt)
	}
	e := breaker.AttemptEnd{Kind: breaker.Responded, Status: res.JudgedStatus()}
	switch at := now.Sub(clock.Start); {
	case res.Cause != policy.CauseStatus || e.Status >= 500:
		e = t.failure(res, p, cutShort)
	case t.queue().Guard.WantsKey(at):
		e.Key = t.of.by.UrlKey()
	}
	t.found(t.end(now, e), res.Cause == policy.CauseStatus || res.Cause.Sure())
}

// failure returns what a failed attempt shows about the upstream.
func (t *Ticket) failure(res *policy.Result, p attempt.Progress, cutShort bool) breaker.AttemptEnd {
	e := breaker.AttemptEnd{Status: res.JudgedStatus()}
	switch res.Cause {
	case policy.CauseStatus:
		e.Kind, e.Client = breaker.Responded, t.of.by.ClientKey()
	case policy.CauseIdleClose, policy.CauseRefusedStream:
		e.Kind = breaker.Unsent
	case policy.CauseDial, policy.CauseTLS, policy.CauseUntrusted:
		e.Kind = breaker.Reset // the connection ended before a byte was sent
		if p.DialError != nil {
			e.Kind, e.CutShort = DialEndKind(p.DialError), cutShort
		}
	default:
		e = FailedEnd(res.Cause, p.Begun)
	}
	e.Key = t.of.by.UrlKey()
	return e
}

// Abandon settles the ticket at the time now, because nobody waits any longer for an attempt that had got
// as far as p. kind is why: breaker.Abandoned or breaker.TimedOut. The upstream may still work on the
// request, so the Guard keeps its permit. If the result is true, the late response is the first sign
// that the upstream is back, and the connection of the attempt goes to AwaitLateResponse. It is closed
// otherwise.
func (t *Ticket) Abandon(now clock.Instant, kind breaker.EndKind, p attempt.Progress) (late Late, awaited bool) {
	if p.Sent {
		t.SentWhole(p.SentAt)
	}
	switch {
	case !t.permit.Taken(): // the attempt was not admitted yet
		t.Return(now)
		return late, false
	case !p.SentSome:
		t.end(now, breaker.AttemptEnd{Kind: breaker.Unsent})
		return late, false
	case p.Begun: // its headers show already what a late response would
		e := breaker.AttemptEnd{Kind: breaker.Unsent} // a client that leaves then shows nothing about the upstream
		if kind == breaker.TimedOut {
			e = FailedEnd(policy.CauseAttemptTimeout, true)
		}
		e.Key = t.of.by.UrlKey()
		t.end(now, e)
		return late, false
	}
	awaited = t.IsProbe() && p.Sent // a request that was not sent whole gets no response
	permit, signal := t.queue().Guard.Abandon(t.permit, now.Sub(clock.Start), breaker.AttemptEnd{Kind: kind, Key: t.of.by.UrlKey(), Closed: !awaited})
	t.settle(signal)
	t.found(signal, false)
	return Late{t.queue(), permit}, awaited
}

// Return settles the ticket at the time now, because its attempt was not sent. Everything goes back.
func (t *Ticket) Return(now clock.Instant) {
	at := now.Sub(clock.Start)
	t.ReturnToken()
	if t.slot != nil {
		t.slot.GiveBack(at, t.use)
	}
	if t.permit.Taken() {
		t.end(now, breaker.AttemptEnd{Kind: breaker.Unsent})
		return
	}
	t.settle(0)
}

// ReturnToken gives back the budget token of an attempt that sent nothing, whatever else it shows.
func (t *Ticket) ReturnToken() {
	if t.hasToken {
		t.hasToken = false
		t.terms.Tokens.budget.GiveBack()
	}
}

// returnPermit gives the permit back while the attempt cannot be sent.
func (t *Ticket) returnPermit(now clock.Instant) {
	permit := t.permit
	t.permit = breaker.Permit{}
	t.queue().HandleSignal(t.queue().Guard.Release(permit, now.Sub(clock.Start), breaker.AttemptEnd{Kind: breaker.Unsent}))
}

// end gives the permit back to the Guard with the evidence e, and settles the ticket. It returns what the
// Guard asks for, which is done.
func (t *Ticket) end(now clock.Instant, e breaker.AttemptEnd) breaker.Signal {
	s := t.queue().Guard.Release(t.permit, now.Sub(clock.Start), e)
	t.settle(s)
	return s
}

// found finds out from the Guard's signal whether the attempt failed while its upstream was known to be down,
// so that the retry of the request uses up no retry: it may wait for the breaker. If it is not certain what
// the upstream did with the attempt, that holds once a request, so that one that kills its upstream does not
// come again and again.
func (t *Ticket) found(s breaker.Signal, certain bool) {
	free := &t.of.waiter.free
	if s&breaker.SignalDown == 0 || !t.terms.Queues || !certain && free.lost {
		return
	}
	free.now, free.lost = true, free.lost || !certain
}

// settle closes the ticket. s is what the Guard asks for.
func (t *Ticket) settle(s breaker.Signal) {
	t.watch.settle(t.open)
	t.open, t.permit, t.hasToken, t.slot, t.use = false, breaker.Permit{}, false, nil, nil
	t.queue().HandleSignal(s)
}

// Late is the permit of an attempt that nobody waits for and whose late response is still evidence.
type Late struct {
	queue  *Queue
	permit breaker.Permit
}

// AwaitResponse reads the late response from up, which it takes over.
func (l Late) AwaitResponse(up *upstream.Conn) { l.queue.AwaitLateResponse(up, l.permit) }
