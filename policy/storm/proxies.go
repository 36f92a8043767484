package storm

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// attemptState is what a path keeps about a client's request.
type attemptState struct {
	ticket policy.Ticket // in the queue
	sent   bool          // at the server
	job    int32         // there
	permit policy.Permit // of the attempt in flight

	began     time.Duration
	retries   int
	previous  time.Duration
	timer     timer // of the attempt in flight, or of the wait in the queue
	atBreaker bool  // it waited for the breaker, not for the limit
}

// proxies are retryproxy processes, each with its share of the clients.
type proxies struct {
	*world
	each     []proxy
	attempts []attemptState
	acts     []uint32 // of each client: moves on when an attempt or a wait ends, and voids its events
}

type proxy struct {
	guard   *policy.Guard
	queue   *policy.Queue[int32]
	budget  *policy.Budget
	timerAt time.Duration // of the timer that is set; Forever: none
	turn    uint32
	index   int32
}

func newProxies(w *world) *proxies {
	p := &proxies{world: w, each: make([]proxy, max(w.Proxies, 1)), attempts: make([]attemptState, w.Clients.N), acts: make([]uint32, w.Clients.N)}
	o := w.Config.Proxy.Guard
	o.Rand = w.rand
	for i := range p.each {
		p.each[i] = proxy{
			guard:   policy.NewGuard(o),
			queue:   policy.NewQueue[int32](w.Config.Proxy.QueueMax),
			budget:  policy.NewBudget(w.Config.Proxy.Budget),
			timerAt: policy.Forever,
			index:   int32(i),
		}
	}
	return p
}

// of is the proxy of a client.
func (p *proxies) of(c int32) *proxy { return &p.each[int(c)%len(p.each)] }

func (p *proxies) begin(c int32) {
	x := p.of(c)
	x.budget.Request(p.now)
	t := &p.attempts[c]
	p.act(c)
	*t = attemptState{began: p.now}
	p.enter(c)
}

// act ends what the client's events were for.
func (p *proxies) act(c int32) {
	p.cancel(p.attempts[c].timer)
	p.acts[c]++
}

// enter asks for a place and sends, or waits in queue.
func (p *proxies) enter(c int32) {
	x, t := p.of(c), &p.attempts[c]
	if t.permit, _ = x.guard.AcquireFast(p.now); t.permit.Taken() {
		p.attempt(c)
		return
	}
	permit, v := x.guard.Acquire(p.now, policy.Request{Key: 1})
	if v <= policy.VerdictProbe {
		t.permit = permit
		p.arm(x)
		p.attempt(c)
		return
	}
	t.atBreaker = v != policy.VerdictAtLimit
	p.enqueue(c, x, v)
}

func (p *proxies) enqueue(c int32, x *proxy, v policy.Verdict) {
	t := &p.attempts[c]
	wait := p.Proxy.LimitQueueTimeout
	if t.atBreaker {
		wait = p.Proxy.BreakerQueueTimeout
		if v == policy.VerdictSuspect {
			wait = max(wait, p.Proxy.LimitQueueTimeout)
		}
		p.result.QueuedAtBreaker++
	} else {
		p.result.QueuedAtLimit++
	}
	p.acts[c]++
	t.timer = p.after(wait, waitEnds, c, p.acts[c])
	var out int32
	var dropped bool
	t.ticket, out, dropped = x.queue.Push(c)
	if dropped {
		x.guard.CancelWait(p.now, policy.Request{Key: 1})
		p.result.Dropped++
		p.clientGets(out, 503)
	}
	p.dequeue(x)
}

// dequeue admits from the queue as long as there is room.
func (p *proxies) dequeue(x *proxy) {
	for x.queue.Len() > 0 {
		permit, v := x.guard.Next(p.now, policy.Request{Key: 1})
		if v > policy.VerdictProbe {
			break
		}
		take := x.queue.Newest
		if p.Proxy.Oldest {
			take = x.queue.Oldest
		}
		c, _ := take()
		t := &p.attempts[c]
		p.act(c)
		t.permit = permit
		p.attempt(c)
	}
	p.arm(x)
}

// handleSignal does what the guard asks for.
func (p *proxies) handleSignal(x *proxy, s policy.Signal) {
	if s&policy.SignalWake != 0 {
		p.dequeue(x)
	} else if s&policy.SignalEvent != 0 {
		p.arm(x)
	}
}

// arm sets the timer for the next event.
func (p *proxies) arm(x *proxy) {
	at := x.guard.NextEvent()
	if at == x.timerAt {
		return
	}
	x.turn++
	x.timerAt = at
	if at != policy.Forever {
		p.after(at-p.now, proxyTimer, x.index, x.turn)
	}
}

// attempt sends with the place it has.
func (p *proxies) attempt(c int32) {
	t := &p.attempts[c]
	if !p.server.accepts() {
		x, permit := p.of(c), t.permit
		t.permit = policy.Permit{}
		s := x.guard.Release(permit, p.now, policy.AttemptEnd{Kind: policy.Refused})
		p.handleSignal(x, s)
		p.refused(c)
		return
	}
	if x := p.of(c); t.permit.Probe() {
		p.handleSignal(x, x.guard.Accepted(p.now)) // its connection is a new one
	}
	t.sent = true
	p.act(c)
	t.job = p.server.take(c, p.turns[c])
	j := p.server.job(t.job)
	j.proxy, j.permit = p.of(c).index, t.permit
	if p.Proxy.AttemptTimeout > 0 {
		t.timer = p.after(p.Proxy.AttemptTimeout, attemptEnds, c, p.acts[c])
	}
}

// refused is a request that found no connection: it was never sent, so it goes
// back in the queue when the breaker is open, and is retried otherwise.
func (p *proxies) refused(c int32) {
	if !p.Proxy.Guard.NoBreaker {
		p.enter(c)
		return
	}
	p.decide(c, &policy.Attempt{Cause: policy.CauseDial}, 502)
}

// responded is the end of a job, whose client may be gone.
func (p *proxies) responded(j *job, status int) {
	x := &p.each[j.proxy]
	e := policy.AttemptEnd{Kind: policy.Responded, Status: status, Key: 1}
	if status == 0 {
		e.Kind = policy.Reset
	}
	t := &p.attempts[j.client]
	waited := p.turns[j.client] == j.turn && t.sent && t.permit == j.permit && j.awaited
	if waited {
		t.sent = false
		p.act(j.client)
		t.permit = policy.Permit{}
	}
	s := policy.Signal(0)
	if j.permit.Taken() {
		s = x.guard.Release(j.permit, p.now, e)
	}
	if waited {
		p.attemptEnded(j.client, status)
	}
	p.handleSignal(x, s)
}

// attemptEnded gives the client a good response and asks about any other.
func (p *proxies) attemptEnded(c int32, status int) {
	switch {
	case status == 0:
		p.reset(c)
	case status == 200:
		p.clientGets(c, 200)
	default:
		p.decide(c, &policy.Attempt{Status: status}, status)
	}
}

// reset is a request whose connection was reset, as all are when the server
// dies. What no retry is left for is given up only if the upstream still takes
// connections: the proxy dials, and a refusal opens the breaker, behind which the
// request waits without being a retry.
func (p *proxies) reset(c int32) {
	x := p.of(c)
	if p.Proxy.Guard.NoBreaker || p.server.accepts() {
		p.decide(c, &policy.Attempt{Cause: policy.CauseReset}, 502)
		return
	}
	if permit, ok := x.guard.AcquireFast(p.now); ok {
		p.handleSignal(x, x.guard.Release(permit, p.now, policy.AttemptEnd{Kind: policy.Refused}))
	}
	p.enter(c)
}

// decide retries or gives the client what there is.
func (p *proxies) decide(c int32, a *policy.Attempt, status int) bool {
	t := &p.attempts[c]
	s := policy.Situation{
		Retries: t.retries, MaxRetries: p.Proxy.Policy.MaxRetries, Safe: true,
		Left: policy.Forever, Elapsed: p.since(t.began), Previous: t.previous,
	}
	d := p.Proxy.Policy.Decide(a, &s, p.of(c).budget, p.now, p.rand)
	if !d.Retry {
		if status != 0 {
			p.clientGets(c, status)
		}
		return false
	}
	t.retries++
	t.previous = d.Wait
	p.act(c)
	p.result.Retries++
	p.after(d.Wait, retryDue, c, p.acts[c])
	return true
}

// leave is the end of a client's patience.
func (p *proxies) leave(c int32) {
	t := &p.attempts[c]
	x := p.of(c)
	p.act(c)
	if t.sent {
		t.sent = false
		p.abandon(c, policy.Abandoned)
		return
	}
	if x.queue.Remove(t.ticket) {
		x.guard.CancelWait(p.now, policy.Request{Key: 1})
		p.arm(x)
	}
}

// abandon leaves an attempt to itself.
func (p *proxies) abandon(c int32, kind policy.EndKind) {
	t := &p.attempts[c]
	x := p.of(c)
	j := p.server.job(t.job)
	permit, s := x.guard.Abandon(t.permit, p.now, policy.AttemptEnd{Kind: kind, Key: 1, Closed: p.Proxy.Hangup && !t.permit.Probe()})
	j.permit, t.permit = permit, policy.Permit{}
	j.awaited = false
	p.handleSignal(x, s)
}

func (p *proxies) on(e event) {
	if e.kind == proxyTimer {
		p.timer(e)
		return
	}
	if p.acts[e.who] != e.turn {
		return
	}
	switch e.kind {
	case waitEnds:
		x := p.of(e.who)
		x.queue.Remove(p.attempts[e.who].ticket)
		x.guard.CancelWait(p.now, policy.Request{Key: 1})
		p.result.Refused++
		p.clientGets(e.who, 503)
		p.arm(x)
	case retryDue:
		p.enter(e.who)
	case attemptEnds:
		p.attemptTimedOut(e.who)
	}
}

// attemptTimedOut retries when that may be, and waits on otherwise.
func (p *proxies) attemptTimedOut(c int32) {
	t := &p.attempts[c]
	if !p.decide(c, &policy.Attempt{Cause: policy.CauseAttemptTimeout}, 0) {
		return
	}
	t.sent = false
	p.abandon(c, policy.TimedOut)
}

func (p *proxies) timer(e event) {
	x := &p.each[e.who]
	if x.turn != e.turn {
		return
	}
	x.timerAt = policy.Forever
	s := x.guard.Expire(p.now)
	if s&policy.SignalWake != 0 {
		p.dequeue(x)
	}
	p.arm(x)
}

// sumUp adds the guards' counters to the result.
func (p *proxies) sumUp() {
	for i := range p.each {
		s := p.each[i].guard.State()
		p.result.Guards = append(p.result.Guards, s)
	}
}
