package policy

import "time"

// What a fleet adds to a gate that is not open: one process probes at a time, by
// turns, and whoever finds the upstream up says so. Both only move a process's own
// probes: a turn of another holds them back, within heldFirst to heldMost, and
// the word that the upstream is up ends that, a little apart from others. What
// opens the gate is its own probe alone, so the worst that a wrong word
// does is as many probes as without a fleet, or one each fifteen seconds.
// See docs/decisions/0016-fleet.md.

const (
	// GateTurnLasts is how long a turn to probe lasts: a few probes of an upstream that
	// refuses, and what a process that ends in its turn can delay the next probe by.
	GateTurnLasts = 500 * time.Millisecond
	// GateUpFor is how long it is known that an upstream was found up, for those
	// who have not heard it.
	GateUpFor = 200 * time.Millisecond
	// turnApart keeps those apart who ask for the next turn, and turnAnswers is how long
	// its answer is waited for.
	turnApart   = 50 * time.Millisecond
	turnAnswers = 150 * time.Millisecond
	// hearApart keeps apart the probes of those who hear that the upstream is up.
	hearApart = 100 * time.Millisecond
	// No process is held back for longer than U[1/2, 1] * min(4 s * 2^k, 15 s) since
	// the gate closed or its own last probe, k = its probes that failed or hung since the
	// last success. So what another finds, who may have lost the way to the upstream, or
	// only says, counts for that long.
	heldFirst = 4 * time.Second
	heldMost  = 15 * time.Second
	// turnTakers are those who had somebody to probe for within that time,
	// turnAskers those who want to know whose turn it is.
	turnTakers = time.Second
	turnAskers = 5 * time.Second
)

// GateAsk is a process's question whose turn it is to probe an upstream.
type GateAsk struct {
	Key   uint64 // whose gate, the same in all processes
	Takes bool   // it has a probe to send, so it takes the turn if that is nobody's
	Hangs bool   // its probe is under way, so its turn goes on
}

// Turn says whose turn it is to probe.
type Turn uint8

// The answers, a closed set.
const (
	TurnOfNobody Turn = iota
	TurnOurs
	TurnOfAnother
	TurnOver // somebody found the upstream up just now
)

// GateTurn is the answer to a GateAsk.
type GateTurn struct {
	Whose Turn
	Left  time.Duration // of the turn; what is more than GateTurnLasts is not believed
}

// GateLedger knows whose turn it is to probe one upstream. In production it is a
// script at the engine, which a test holds to this one; simulations use it as it
// is. It is not safe for concurrent use. The zero value is ready.
type GateLedger struct {
	who  uint64 // 0: somebody found the upstream up
	ends time.Duration
}

// Turn answers the question of a process, who is not 0.
func (l *GateLedger) Turn(now time.Duration, who uint64, a GateAsk) GateTurn {
	left := max(0, min(l.ends-now, GateTurnLasts))
	switch {
	case left > 0 && l.who == 0:
		return GateTurn{Whose: TurnOver}
	case left > 0 && l.who != who:
		return GateTurn{TurnOfAnother, left}
	case left > 0 && !a.Hangs:
		return GateTurn{TurnOurs, left}
	case left > 0 || a.Takes:
		l.who, l.ends = who, now+GateTurnLasts
		return GateTurn{TurnOurs, GateTurnLasts}
	}
	return GateTurn{}
}

// Opened takes in that a process found the upstream up, and says whether that is
// news for the others.
func (l *GateLedger) Opened(now time.Duration) (news bool) {
	news = l.who != 0 || l.ends <= now
	l.who, l.ends = 0, now+GateUpFor
	return news
}

// turns is a Guard's part in that.
type turns struct {
	askAt    time.Duration // when it is worth asking again
	wantedAt time.Duration // when an attempt was last told to wait, or was the probe
}

// AskTurn makes the question whose turn it is to probe, when it is due, and says
// when the next one is: Forever when nothing is to be probed, or nobody wants it to be.
func (g *Guard) AskTurn(now time.Duration) (a GateAsk, due bool, next time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	quiet := now - g.turns.wantedAt
	a.Takes = g.waiting > 0 || quiet < turnTakers || g.options.OwnProbe || g.gate.state == GateClosed && g.gate.why.connecting()
	switch {
	case g.gate.passing(), !a.Takes && quiet >= turnAskers:
		return a, false, Forever
	case now < g.turns.askAt:
		return a, false, g.turns.askAt
	}
	a.Hangs = g.gate.probe != 0
	g.turns.askAt = now + GateTurnLasts/2 // should no answer come
	return a, true, g.turns.askAt
}

// GrantTurn takes in the answer to a question of AskTurn. Without one the Guard
// probes by its own rule.
func (g *Guard) GrantTurn(now time.Duration, t GateTurn) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gate.passing() {
		return 0
	}
	before, r := g.eventAt, g.options.Rand
	left := max(0, min(t.Left, GateTurnLasts))
	ends := now + left
	g.turns.askAt = ends + upTo(r, turnApart)
	switch t.Whose {
	case TurnOurs:
		g.gate.hold(now, ends, ends+turnAnswers, r)
		if left > GateTurnLasts/2 { // in time for a probe that hangs
			g.turns.askAt = now + left*3/4
		}
	case TurnOfAnother:
		g.gate.hold(now, now, ends+turnAnswers, r)
	case TurnOver:
		g.hearOpen(now)
	default:
		g.turns.askAt = now + GateTurnLasts
	}
	return g.settle(now, before)
}

// HearOpen takes in that another process found the upstream up: a hint, which
// brings the next probe forward to when it may be by the Guard's own rule.
func (g *Guard) HearOpen(now time.Duration) Signal {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gate.passing() {
		return 0
	}
	before := g.eventAt
	g.hearOpen(now)
	return g.settle(now, before)
}

func (g *Guard) hearOpen(now time.Duration) {
	g.gate.hear(now, g.options.Rand)
	g.turns.askAt = now + GateTurnLasts // our own probe first
}

// held is the time in which a gate's probes are held back.
type held struct {
	from, to time.Duration
	most     time.Duration // but not later than that; 0: not drawn since the last probe
	heardTo  time.Duration // until then nothing holds back: the upstream was said to be up
}

// hold holds probes back from a time to another.
func (g *gate) hold(now, from, to time.Duration, r Rand) {
	if now < g.held.heardTo {
		return
	}
	if g.held.most == 0 {
		g.held.most = max(g.closedAt, g.begunAt) + half(grow(heldFirst, heldMost, 2, g.failed+g.hung), r)
	}
	g.held.from, g.held.to = from, to
}

// end is when they are no longer.
func (h *held) end() time.Duration {
	if h.most == 0 {
		return h.to
	}
	return min(h.to, h.most)
}

// holds says whether probes are held back now.
func (g *gate) holds(now time.Duration) bool { return g.held.from <= now && now < g.held.end() }

// hear ends the time in which probes are held back, after a moment by which they are apart.
// A probe that hangs is given up after the time that it would be if nobody heard its
// answer, since it may have been lost without a word.
func (g *gate) hear(now time.Duration, r Rand) {
	g.held.heardTo = now + GateTurnLasts
	at := now + upTo(r, hearApart)
	g.held.to = min(g.held.to, at)
	if g.probe != 0 {
		g.probeEnds = min(g.probeEnds, max(at, g.begunAt+half(grow(goneFirst, goneMost, 2, g.hung), r)))
	}
}

// readyAt is when a closed gate's next probe is due.
func (g *gate) readyAt() time.Duration {
	if g.dueAt < g.held.from {
		return g.dueAt
	}
	return max(g.dueAt, g.held.end())
}
