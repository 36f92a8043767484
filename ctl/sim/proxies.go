package sim

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/queue"
)

// attemptState is the state of a client's request in a proxy.
type attemptState struct {
	ticket queue.Ticket   // in the queue
	sent   bool           // to the server
	job    int32          // of the server
	permit breaker.Permit // of the attempt in flight

	began     time.Duration
	retries   int
	previous  time.Duration
	atBreaker bool // it waits for the breaker, not for the limit
}

// proxies simulates retryproxy processes, each with its share of the clients.
type proxies struct {
	*world
	each     []proxy
	attempts []attemptState
	acts     []uint32 // of each client: changes when an attempt or a wait ends, and voids its events
}

type proxy struct {
	guard   *breaker.Guard
	queue   *queue.Queue[int32]
	budget  *budget.Budget
	timerAt time.Duration // when the timer is set; Forever: it is not set
	turn    uint32
	index   int32
	of      *proxies
	picked  int32 // by Pick
	fits    func(breaker.Request) bool
	newest  func(int32) bool // whether a client's request fits, made once
}

// Pick implements breaker.Line.
func (x *proxy) Pick(fits func(breaker.Request) bool) (breaker.Request, bool) {
	x.fits = fits
	c, ok := x.queue.NewestThat(x.newest)
	x.picked = c
	return x.of.request(c), ok
}

func newProxies(w *world) *proxies {
	p := &proxies{world: w, each: make([]proxy, max(w.Proxies, 1)), attempts: make([]attemptState, w.Clients.N), acts: make([]uint32, w.Clients.N)}
	o := w.Config.Proxy.Guard
	o.Rand = w.rand
	for i := range p.each {
		p.each[i] = proxy{
			guard:   breaker.New(o),
			queue:   queue.New[int32](w.Config.Proxy.QueueMax),
			budget:  budget.New(w.Config.Proxy.Budget),
			timerAt: backoff.Forever,
			index:   int32(i),
			of:      p,
		}
		x := &p.each[i]
		x.newest = func(c int32) bool { return x.fits(p.request(c)) }
	}
	return p
}

// request returns what a guard has to know of the request of a client, which is always for the same URL.
func (p *proxies) request(c int32) breaker.Request {
	return breaker.Request{Key: 2*uint32(int(c)%max(p.Clients.URLs, 1)) + 1}
}

// of returns the proxy of a client.
func (p *proxies) of(c int32) *proxy { return &p.each[int(c)%len(p.each)] }

func (p *proxies) begin(c int32) {
	x := p.of(c)
	x.budget.Request(p.now)
	t := &p.attempts[c]
	p.act(c)
	*t = attemptState{began: p.now}
	p.enter(c)
}

// act voids the pending events of the client's attempt.
func (p *proxies) act(c int32) { p.acts[c]++ }

// enter asks for a permit and sends, or queues the request.
func (p *proxies) enter(c int32) {
	x, t := p.of(c), &p.attempts[c]
	if t.permit, _ = x.guard.AcquireFast(p.now); t.permit.Taken() {
		p.attempt(c)
		return
	}
	permit, v := x.guard.Acquire(p.now, p.request(c))
	if v <= breaker.VerdictProbe {
		t.permit = permit
		p.arm(x)
		p.attempt(c)
		return
	}
	t.atBreaker = v != breaker.VerdictAtLimit
	p.enqueue(c, x, v)
}

func (p *proxies) enqueue(c int32, x *proxy, v breaker.Verdict) {
	t := &p.attempts[c]
	wait := p.Proxy.LimitQueueTimeout
	if t.atBreaker {
		wait = p.Proxy.BreakerQueueTimeout
		if v == breaker.VerdictSuspect {
			wait = max(wait, p.Proxy.LimitQueueTimeout)
		}
	}
	p.result.Queued++
	p.acts[c]++
	p.after(wait, waitEnds, c, p.acts[c])
	var out int32
	var dropped bool
	t.ticket, out, dropped = x.queue.Push(c)
	if dropped {
		x.guard.CancelWait(p.now, p.request(out))
		p.clientGets(out, 503)
	}
	p.dequeue(x)
}

// dequeue admits requests from the queue while there are permits.
func (p *proxies) dequeue(x *proxy) {
	for x.queue.Len() > 0 {
		permit, v := x.guard.Next(p.now, x)
		if v > breaker.VerdictProbe {
			break
		}
		c := x.picked
		t := &p.attempts[c]
		p.act(c)
		t.permit = permit
		p.attempt(c)
	}
	p.arm(x)
}

// handleSignal does what the guard's Signal asks for.
func (p *proxies) handleSignal(x *proxy, s breaker.Signal) {
	if s&breaker.SignalWake != 0 {
		p.dequeue(x)
	} else if s&breaker.SignalEvent != 0 {
		p.arm(x)
	}
}

// arm sets the timer to the next event.
func (p *proxies) arm(x *proxy) {
	at := x.guard.NextEvent()
	if at == x.timerAt {
		return
	}
	x.turn++
	x.timerAt = at
	if at != backoff.Forever {
		p.after(at-p.now, proxyTimer, x.index, x.turn)
	}
}

// attempt sends a request with its permit.
func (p *proxies) attempt(c int32) {
	t := &p.attempts[c]
	if !p.server.accepts() {
		x, permit := p.of(c), t.permit
		t.permit = breaker.Permit{}
		s := x.guard.Release(permit, p.now, breaker.AttemptEnd{Kind: breaker.Refused})
		p.handleSignal(x, s)
		p.refused(c)
		return
	}
	t.sent = true
	p.act(c)
	t.job = p.server.take(c, p.turns[c])
	j := p.server.job(t.job)
	j.proxy, j.permit = p.of(c).index, t.permit
	if p.Proxy.AttemptTimeout > 0 {
		p.after(p.Proxy.AttemptTimeout, attemptEnds, c, p.acts[c])
	}
}

// refused handles a request without a connection: it was never sent, so with a breaker it
// is queued again, and otherwise it is retried.
func (p *proxies) refused(c int32) {
	if !p.Proxy.Guard.NoBreaker {
		p.enter(c)
		return
	}
	p.decide(c, &policy.Result{Cause: policy.CauseDial}, 502)
}

// responded handles the end of a job. Its client may have left.
func (p *proxies) responded(j *job, status int) {
	x := &p.each[j.proxy]
	e := breaker.AttemptEnd{Kind: breaker.Responded, Status: status, Key: p.request(j.client).Key}
	if status == 0 {
		e.Kind = breaker.Reset
	}
	t := &p.attempts[j.client]
	waited := p.turns[j.client] == j.turn && t.sent && t.permit == j.permit && j.awaited
	if waited {
		t.sent = false
		p.act(j.client)
		t.permit = breaker.Permit{}
	}
	s := breaker.Signal(0)
	if j.permit.Taken() {
		s = x.guard.Release(j.permit, p.now, e)
	}
	if waited {
		p.attemptEnded(j.client, status)
	}
	p.handleSignal(x, s)
}

func (p *proxies) endpointLost() {
	for i := range p.each {
		p.handleSignal(&p.each[i], p.each[i].guard.EndpointLost(p.now))
	}
}

// attemptEnded passes a good response to the client, and lets the policy decide about any
// other.
func (p *proxies) attemptEnded(c int32, status int) {
	switch {
	case status == 0:
		p.reset(c)
	case status == 200:
		p.clientGets(c, 200)
	default:
		p.decide(c, &policy.Result{Status: status}, status)
	}
}

// reset handles a request whose connection was reset, as all are when the server dies. It
// is decided by the policy only if the upstream still accepts connections. Otherwise the
// proxy's dial is refused and opens the breaker, and the request is queued without counting
// as a retry.
func (p *proxies) reset(c int32) {
	x := p.of(c)
	if p.Proxy.Guard.NoBreaker || p.server.accepts() {
		p.decide(c, &policy.Result{Cause: policy.CauseReset}, 502)
		return
	}
	if permit, ok := x.guard.AcquireFast(p.now); ok {
		p.handleSignal(x, x.guard.Release(permit, p.now, breaker.AttemptEnd{Kind: breaker.Refused}))
	}
	p.enter(c)
}

// decide retries the request or passes the response to the client, and reports whether it
// retries.
func (p *proxies) decide(c int32, res *policy.Result, status int) bool {
	t := &p.attempts[c]
	s := policy.Situation{
		Retries: t.retries, MaxRetries: p.Proxy.Policy.MaxRetries, Safe: true,
		Left: backoff.Forever, Elapsed: p.since(t.began), Previous: t.previous,
	}
	d := p.Proxy.Policy.Decide(res, &s, p.of(c).budget, p.now, p.rand)
	if !d.Retry {
		if status != 0 {
			p.clientGets(c, status)
		}
		return false
	}
	t.retries++
	t.previous = d.Wait
	p.act(c)
	p.after(d.Wait, retryDue, c, p.acts[c])
	return true
}

// leave handles a client that gives up.
func (p *proxies) leave(c int32) {
	t := &p.attempts[c]
	x := p.of(c)
	p.act(c)
	if t.sent {
		t.sent = false
		p.abandon(c, breaker.Abandoned)
		return
	}
	if x.queue.Remove(t.ticket) {
		x.guard.CancelWait(p.now, p.request(c))
		p.arm(x)
	}
}

// abandon stops waiting for an attempt, which continues at the server. Only the connection of a
// probe stays open.
func (p *proxies) abandon(c int32, kind breaker.EndKind) {
	t := &p.attempts[c]
	x := p.of(c)
	j := p.server.job(t.job)
	permit, s := x.guard.Abandon(t.permit, p.now, breaker.AttemptEnd{Kind: kind, Key: p.request(c).Key, Closed: !t.permit.Probe()})
	j.permit, t.permit = permit, breaker.Permit{}
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
		p.waitEnded(e.who)
	case retryDue:
		p.enter(e.who)
	case attemptEnds:
		p.attemptTimedOut(e.who)
	}
}

// waitEnded sends a request whose time in the queue is over if the server is only silent, and
// rejects it otherwise.
func (p *proxies) waitEnded(c int32) {
	x, t := p.of(c), &p.attempts[c]
	x.queue.Remove(t.ticket)
	x.guard.CancelWait(p.now, p.request(c))
	permit, ok := breaker.Permit{}, false
	if t.atBreaker {
		permit, ok = x.guard.TakeLast(p.now, p.request(c))
	}
	if ok {
		t.permit = permit
		p.attempt(c)
	} else {
		p.clientGets(c, 503)
	}
	p.arm(x)
}

// attemptTimedOut retries if the policy allows it, and otherwise keeps waiting.
func (p *proxies) attemptTimedOut(c int32) {
	t := &p.attempts[c]
	if !p.decide(c, &policy.Result{Cause: policy.CauseAttemptTimeout}, 0) {
		return
	}
	t.sent = false
	p.abandon(c, breaker.TimedOut)
}

func (p *proxies) timer(e event) {
	x := &p.each[e.who]
	if x.turn != e.turn {
		return
	}
	x.timerAt = backoff.Forever
	s := x.guard.Expire(p.now)
	if permit, due := x.guard.Probe(p.now); due {
		kind := breaker.Refused
		if p.server.accepts() {
			kind = breaker.Connected
		}
		s |= x.guard.Release(permit, p.now, breaker.AttemptEnd{Kind: kind})
	}
	if s&breaker.SignalWake != 0 {
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
