package storm

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// try is what a path keeps about a caller's request.
type try struct {
	ticket policy.Ticket // in line
	sent   bool          // at the server
	job    int32         // there
	place  policy.Place  // of the attempt under way

	began    time.Duration
	retries  int
	previous time.Duration
	timer    timer // of the attempt under way, or of the wait in line
	held     bool  // it waited for the gate, not for the limit
}

// proxies are retryproxy processes, each with its share of the callers.
type proxies struct {
	*world
	each  []proxy
	tries []try
	acts  []uint32 // of each caller: moves on when an attempt or a wait ends, and voids its events
}

type proxy struct {
	guard   *policy.Guard
	line    *policy.Line[int32]
	budget  *policy.Budget
	timerAt time.Duration // of the timer that is set; Forever: none
	turn    uint32
	index   int32
}

func newProxies(w *world) *proxies {
	p := &proxies{world: w, each: make([]proxy, max(w.Proxies, 1)), tries: make([]try, w.Callers.N), acts: make([]uint32, w.Callers.N)}
	o := w.Config.Proxy.Guard
	o.Rand = w.rand
	for i := range p.each {
		p.each[i] = proxy{
			guard:   policy.NewGuard(o),
			line:    policy.NewLine[int32](w.Config.Proxy.HoldMost),
			budget:  policy.NewBudget(w.Config.Proxy.Budget),
			timerAt: policy.Forever,
			index:   int32(i),
		}
	}
	return p
}

// of is the proxy of a caller.
func (p *proxies) of(c int32) *proxy { return &p.each[int(c)%len(p.each)] }

func (p *proxies) begin(c int32) {
	x := p.of(c)
	x.budget.Request(p.now)
	t := &p.tries[c]
	p.act(c)
	*t = try{began: p.now}
	p.enter(c)
}

// act ends what the caller's events were for.
func (p *proxies) act(c int32) {
	p.cancel(p.tries[c].timer)
	p.acts[c]++
}

// enter asks for a place and sends, or stands in line.
func (p *proxies) enter(c int32) {
	x, t := p.of(c), &p.tries[c]
	if t.place, _ = x.guard.EnterFast(p.now); t.place.Taken() {
		p.attempt(c)
		return
	}
	place, v := x.guard.Enter(p.now, policy.Request{Key: 1})
	if v <= policy.VerdictProbe {
		t.place = place
		p.arm(x)
		p.attempt(c)
		return
	}
	t.held = v != policy.VerdictQueue
	p.standInLine(c, x, v)
}

func (p *proxies) standInLine(c int32, x *proxy, v policy.Verdict) {
	t := &p.tries[c]
	wait := p.Proxy.QueueFor
	if t.held {
		wait = p.Proxy.HoldFor
		if v == policy.VerdictDoubt {
			wait = max(wait, p.Proxy.QueueFor)
		}
		p.result.Held++
	} else {
		p.result.Queued++
	}
	p.acts[c]++
	t.timer = p.after(wait, waitEnds, c, p.acts[c])
	var out int32
	var dropped bool
	t.ticket, out, dropped = x.line.Push(c)
	if dropped {
		x.guard.Quit(p.now, policy.Request{Key: 1})
		p.result.Dropped++
		p.callerGets(out, 503)
	}
	p.pump(x)
}

// pump admits from the line as long as there is room.
func (p *proxies) pump(x *proxy) {
	for x.line.Len() > 0 {
		place, v := x.guard.Next(p.now, policy.Request{Key: 1})
		if v > policy.VerdictProbe {
			break
		}
		take := x.line.Newest
		if p.Proxy.Oldest {
			take = x.line.Oldest
		}
		c, _ := take()
		t := &p.tries[c]
		p.act(c)
		t.place = place
		p.attempt(c)
	}
	p.arm(x)
}

// heed does what the guard asks for.
func (p *proxies) heed(x *proxy, s policy.Signal) {
	if s&policy.SignalWake != 0 {
		p.pump(x)
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
	t := &p.tries[c]
	if !p.server.accepts() {
		x, place := p.of(c), t.place
		t.place = policy.Place{}
		s := x.guard.Leave(place, p.now, policy.Ending{Kind: policy.Refused})
		p.heed(x, s)
		p.refused(c)
		return
	}
	if x := p.of(c); t.place.Probe() {
		p.heed(x, x.guard.Accepted(p.now)) // its connection is a new one
	}
	t.sent = true
	p.act(c)
	t.job = p.server.take(c, p.turns[c])
	j := p.server.job(t.job)
	j.proxy, j.place = p.of(c).index, t.place
	if p.Proxy.AttemptTimeout > 0 {
		t.timer = p.after(p.Proxy.AttemptTimeout, attemptEnds, c, p.acts[c])
	}
}

// refused is a request that found no connection: it was never sent, so it goes
// back in line when the gate is closed, and is repeated otherwise.
func (p *proxies) refused(c int32) {
	if !p.Proxy.Guard.NoGate {
		p.enter(c)
		return
	}
	p.decide(c, &policy.Attempt{Cause: policy.CauseDial}, 502)
}

// answered is the end of a job, whose caller may be gone.
func (p *proxies) answered(j *job, status int) {
	x := &p.each[j.proxy]
	e := policy.Ending{Kind: policy.Answered, Status: status, Key: 1}
	if status == 0 {
		e.Kind = policy.Reset
	}
	t := &p.tries[j.caller]
	waited := p.turns[j.caller] == j.turn && t.sent && t.place == j.place && j.heard
	if waited {
		t.sent = false
		p.act(j.caller)
		t.place = policy.Place{}
	}
	s := policy.Signal(0)
	if j.place.Taken() {
		s = x.guard.Leave(j.place, p.now, e)
	}
	if waited {
		p.attemptEnded(j.caller, status)
	}
	p.heed(x, s)
}

// attemptEnded gives the caller a good answer and asks about any other.
func (p *proxies) attemptEnded(c int32, status int) {
	switch {
	case status == 0:
		p.reset(c)
	case status == 200:
		p.callerGets(c, 200)
	default:
		p.decide(c, &policy.Attempt{Status: status}, status)
	}
}

// reset is a request whose connection was reset, as all are when the server
// dies. What no retry is left for is given up only if the upstream still takes
// connections: the proxy dials, and a refusal closes the gate, behind which the
// request waits without being a retry.
func (p *proxies) reset(c int32) {
	x := p.of(c)
	if p.Proxy.Guard.NoGate || p.server.accepts() {
		p.decide(c, &policy.Attempt{Cause: policy.CauseReset}, 502)
		return
	}
	if place, ok := x.guard.EnterFast(p.now); ok {
		p.heed(x, x.guard.Leave(place, p.now, policy.Ending{Kind: policy.Refused}))
	}
	p.enter(c)
}

// decide repeats or gives the caller what there is.
func (p *proxies) decide(c int32, a *policy.Attempt, status int) bool {
	t := &p.tries[c]
	s := policy.Situation{
		Retries: t.retries, MaxRetries: p.Proxy.Policy.MaxRetries, Safe: true,
		Left: policy.Forever, Elapsed: p.since(t.began), Previous: t.previous,
	}
	d := p.Proxy.Policy.Decide(a, &s, p.of(c).budget, p.now, p.rand)
	if !d.Retry {
		if status != 0 {
			p.callerGets(c, status)
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

// leave is the end of a caller's patience.
func (p *proxies) leave(c int32) {
	t := &p.tries[c]
	x := p.of(c)
	p.act(c)
	if t.sent {
		t.sent = false
		p.abandon(c, policy.Abandoned)
		return
	}
	if x.line.Remove(t.ticket) {
		x.guard.Quit(p.now, policy.Request{Key: 1})
		p.arm(x)
	}
}

// abandon leaves an attempt to itself.
func (p *proxies) abandon(c int32, kind policy.EndKind) {
	t := &p.tries[c]
	x := p.of(c)
	j := p.server.job(t.job)
	place, s := x.guard.Abandon(t.place, p.now, policy.Ending{Kind: kind, Key: 1, Closed: p.Proxy.Hangup && !t.place.Probe()})
	j.place, t.place = place, policy.Place{}
	j.heard = false
	p.heed(x, s)
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
		x.line.Remove(p.tries[e.who].ticket)
		x.guard.Quit(p.now, policy.Request{Key: 1})
		p.result.Refused++
		p.callerGets(e.who, 503)
		p.arm(x)
	case retryDue:
		p.enter(e.who)
	case attemptEnds:
		p.attemptTimedOut(e.who)
	}
}

// attemptTimedOut repeats when that may be, and waits on otherwise.
func (p *proxies) attemptTimedOut(c int32) {
	t := &p.tries[c]
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
		p.pump(x)
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
