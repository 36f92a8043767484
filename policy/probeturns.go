package policy

import "time"

// What a fleet adds to a breaker that is not closed: one process probes at a time, by
// turns, and whoever finds the upstream up says so. Both only move a process's own
// probes: a turn of another holds them back, within probeDelayFirst to probeDelayMax, and
// the word that the upstream is up ends that, a little apart from others. What
// closes the breaker is its own probe alone, so the worst that a wrong word
// does is as many probes as without a fleet, or one each fifteen seconds.
// See docs/decisions/0016-fleet.md.

const (
	// ProbeTurnDuration is how long a turn to probe lasts: a few probes of an upstream that
	// refuses, and what a process that ends in its turn can delay the next probe by.
	ProbeTurnDuration = 500 * time.Millisecond
	// UpstreamUpFor is how long it is known that an upstream was found up, for those
	// who have not heard it.
	UpstreamUpFor = 200 * time.Millisecond
	// turnJitter keeps those apart who ask for the next turn, and turnGrantTimeout is how long
	// its response is waited for.
	turnJitter       = 50 * time.Millisecond
	turnGrantTimeout = 150 * time.Millisecond
	// foundUpJitter keeps apart the probes of those who hear that the upstream is up.
	foundUpJitter = 100 * time.Millisecond
	// No process is held back for longer than U[1/2, 1] * min(4 s * 2^k, 15 s) since
	// the breaker opened or its own last probe, k = its probes that failed or hung since the
	// last success. So what another finds, who may have lost the way to the upstream, or
	// only says, counts for that long.
	probeDelayFirst = 4 * time.Second
	probeDelayMax   = 15 * time.Second
	// turnTakeWindow are those who had somebody to probe for within that time,
	// turnRequestWindow those who want to know whose turn it is.
	turnTakeWindow    = time.Second
	turnRequestWindow = 5 * time.Second
)

// ProbeTurnRequest is a process's question whose turn it is to probe an upstream.
type ProbeTurnRequest struct {
	Key          uint64 // whose breaker, the same in all processes
	WantsTurn    bool   // it has a probe to send, so it takes the turn if that is nobody's
	ProbePending bool   // its probe is in flight, so its turn goes on
}

// TurnOwner says whose turn it is to probe.
type TurnOwner uint8

// The responses, a closed set.
const (
	TurnOfNobody TurnOwner = iota
	TurnOurs
	TurnOfAnother
	TurnUpstreamUp // somebody found the upstream up just now
)

// ProbeTurnGrant is the answer to a ProbeTurnRequest.
type ProbeTurnGrant struct {
	Owner     TurnOwner
	Remaining time.Duration // of the turn; what is more than ProbeTurnDuration is not believed
}

// ProbeTurnLedger knows whose turn it is to probe one upstream. In production it is a
// script at the engine, which a test holds to this one; simulations use it as it
// is. It is not safe for concurrent use. The zero value is ready.
type ProbeTurnLedger struct {
	owner uint64 // 0: somebody found the upstream up
	ends  time.Duration
}

// Turn answers the question of a process, who is not 0.
func (l *ProbeTurnLedger) Turn(now time.Duration, who uint64, a ProbeTurnRequest) ProbeTurnGrant {
	left := max(0, min(l.ends-now, ProbeTurnDuration))
	switch {
	case left > 0 && l.owner == 0:
		return ProbeTurnGrant{Owner: TurnUpstreamUp}
	case left > 0 && l.owner != who:
		return ProbeTurnGrant{TurnOfAnother, left}
	case left > 0 && !a.ProbePending:
		return ProbeTurnGrant{TurnOurs, left}
	case left > 0 || a.WantsTurn:
		l.owner, l.ends = who, now+ProbeTurnDuration
		return ProbeTurnGrant{TurnOurs, ProbeTurnDuration}
	}
	return ProbeTurnGrant{}
}

// MarkUp takes in that a process found the upstream up, and says whether that is
// news for the others.
func (l *ProbeTurnLedger) MarkUp(now time.Duration) (news bool) {
	news = l.owner != 0 || l.ends <= now
	l.owner, l.ends = 0, now+UpstreamUpFor
	return news
}

// turns is a Guard's part in that.
type turns struct {
	requestAt time.Duration // when it is worth asking again
	wantedAt  time.Duration // when an attempt was last told to wait, or was the probe
}

// RequestProbeTurn makes the question whose turn it is to probe, when it is due, and says
// when the next one is: Forever when nothing is to be probed, or nobody wants it to be.
func (g *Guard) RequestProbeTurn(now time.Duration) (a ProbeTurnRequest, due bool, next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	quiet := now - g.turns.wantedAt
	a.WantsTurn = g.waiting > 0 || quiet < turnTakeWindow || g.options.ActiveProbe || g.breaker.state == BreakerOpen && g.breaker.why.connecting()
	switch {
	case g.breaker.allowsRequests(), !a.WantsTurn && quiet >= turnRequestWindow:
		return a, false, Forever
	case now < g.turns.requestAt:
		return a, false, g.turns.requestAt
	}
	a.ProbePending = g.breaker.probe != 0
	g.turns.requestAt = now + ProbeTurnDuration/2 // should no response come
	return a, true, g.turns.requestAt
}

// ApplyProbeTurn takes in the answer to a question of RequestProbeTurn. Without one the Guard
// probes by its own rule.
func (g *Guard) ApplyProbeTurn(now time.Duration, t ProbeTurnGrant) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.allowsRequests() {
		return 0
	}
	before, r := g.eventAt, g.options.Rand
	left := max(0, min(t.Remaining, ProbeTurnDuration))
	ends := now + left
	g.turns.requestAt = ends + upTo(r, turnJitter)
	switch t.Owner {
	case TurnOurs:
		g.breaker.delayProbes(now, ends, ends+turnGrantTimeout, r)
		if left > ProbeTurnDuration/2 { // in time for a probe that hangs
			g.turns.requestAt = now + left*3/4
		}
	case TurnOfAnother:
		g.breaker.delayProbes(now, now, ends+turnGrantTimeout, r)
	case TurnUpstreamUp:
		g.peerFoundUp(now)
	default:
		g.turns.requestAt = now + ProbeTurnDuration
	}
	return g.finish(now, before)
}

// PeerFoundUp takes in that another process found the upstream up: a hint, which
// brings the next probe forward to when it may be by the Guard's own rule.
func (g *Guard) PeerFoundUp(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.breaker.allowsRequests() {
		return 0
	}
	before := g.eventAt
	g.peerFoundUp(now)
	return g.finish(now, before)
}

func (g *Guard) peerFoundUp(now time.Duration) {
	g.breaker.upstreamFoundUp(now, g.options.Rand)
	g.turns.requestAt = now + ProbeTurnDuration // our own probe first
}

// probeDelay is the time in which a breaker's probes are held back.
type probeDelay struct {
	from, to time.Duration
	most     time.Duration // but not later than that; 0: not drawn since the last probe
	upUntil  time.Duration // until then nothing holds back: the upstream was said to be up
}

// delayProbes holds probes back from a time to another.
func (g *breaker) delayProbes(now, from, to time.Duration, r Rand) {
	if now < g.delay.upUntil {
		return
	}
	if g.delay.most == 0 {
		g.delay.most = max(g.openedAt, g.begunAt) + half(grow(probeDelayFirst, probeDelayMax, 2, g.failed+g.hung), r)
	}
	g.delay.from, g.delay.to = from, to
}

// end is when they are no longer.
func (h *probeDelay) end() time.Duration {
	if h.most == 0 {
		return h.to
	}
	return min(h.to, h.most)
}

// probesDelayed says whether probes are held back now.
func (g *breaker) probesDelayed(now time.Duration) bool {
	return g.delay.from <= now && now < g.delay.end()
}

// upstreamFoundUp ends the time in which probes are held back, after a moment by which they are apart.
// A probe that hangs is given up after the time that it would be if nobody heard its
// answer, since it may have been lost without a word.
func (g *breaker) upstreamFoundUp(now time.Duration, r Rand) {
	g.delay.upUntil = now + ProbeTurnDuration
	at := now + upTo(r, foundUpJitter)
	g.delay.to = min(g.delay.to, at)
	if g.probe != 0 {
		g.probeEnds = min(g.probeEnds, max(at, g.begunAt+half(grow(clientGoneFirst, clientGoneMax, 2, g.hung), r)))
	}
}

// readyAt is when an open breaker's next probe is due.
func (g *breaker) readyAt() time.Duration {
	if g.dueAt < g.delay.from {
		return g.dueAt
	}
	return max(g.dueAt, g.delay.end())
}
