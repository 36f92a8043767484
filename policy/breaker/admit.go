package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// The rules of admission: who passes the window.

// verdict returns the verdict for a request now. Requests in the queue take precedence over new
// ones.
func (g *core) verdict(now time.Duration, r Request, queued bool) Verdict {
	first := queued || !g.waiting.any() || !r.Unfinished && !g.waiting.anyWhole() // incomplete ones may wait for what it does not need
	return g.passes(now, !r.Unfinished, r.Key, g.trust(now, r), first)
}

// passes returns the verdict for a request, complete or not, of whose URL t is known; with key 0 it is any.
func (g *core) passes(now time.Duration, whole bool, key uint32, t trust, first bool) Verdict {
	w := &g.window
	extra := now >= w.extraAt
	switch {
	case w.phase == shut && g.probesSeparately():
	case w.phase == shut && whole && (first && g.pace.due() || g.mayTry(now, whole, t)):
		return VerdictProbe
	case w.phase == shut && !whole && first && g.pace.due() && extra && !g.atFixed(false):
		return VerdictGo
	case w.phase == shut && now < g.urls.trialEnd:
		return VerdictSuspect // in a moment more is known
	case w.phase == shut:
	case g.atFixed(whole):
	case w.phase == open && (first || g.options.ConcurrencyLimit != ConcurrencyLimitFixed),
		g.mayTry(now, whole, t), // whoever waits
		w.phase == doubt && extra,
		w.limits() && t == silent && now >= g.urls.turn(now, overdue(&g.baseline), key),
		w.limits() && t != silent && first && (g.hasPlace(whole) || extra):
		return VerdictGo
	}
	switch {
	case w.phase == shut:
		return VerdictBreakerOpen
	case w.phase == doubt && !g.options.NoBreaker, w.phase == start, w.recovering():
		return VerdictSuspect
	}
	return VerdictAtLimit
}

// hasPlace reports whether a place is free for a request, complete or not.
func (g *core) hasPlace(whole bool) bool {
	return !g.window.full(g.counters) && (whole || !g.window.uploadsFull(g.counters))
}

// trust returns what is known of the URL of r.
func (g *core) trust(now time.Duration, r Request) trust {
	return g.urls.trust(now, overdue(&g.baseline), r.Key)
}

// mayTry reports whether a request may pass beside the window, because its URL was answered
// lately: its response tells at once whether the upstream or only another URL is silent. One
// at a time does.
func (g *core) mayTry(now time.Duration, whole bool, t trust) bool {
	return whole && t == known && now >= g.urls.trialEnd && g.tellsURLsApart(now) && !g.probesSeparately()
}

// tellsURLsApart reports whether a request may pass before others because of its URL. With
// Options.After failures stop all of them, and then all keep the order of the queue.
func (g *core) tellsURLsApart(now time.Duration) bool {
	w := &g.window
	return w.binds() && (g.options.After == 0 || w.phase == doubt || g.pace.why == OpenedByStall) &&
		(!w.limits() || g.urls.anyDoubtful(now, overdue(&g.baseline)))
}

// atFixed reports whether a fixed limit is reached. Whoever sets a number means attempts that
// somebody waits for, as other proxies count them, and the circuit breaker protects an
// upstream that stopped. Without one only the limit does, so abandoned attempts count then.
// Incomplete requests take at most half of it, so that slow uploads cannot hold all
// permits. See docs/explanation/breaker.md.
func (g *core) atFixed(whole bool) bool {
	limit, c := int64(g.options.FixedLimit), g.counters
	switch {
	case g.options.ConcurrencyLimit != ConcurrencyLimitFixed:
		return false
	case !whole && c.sending.Load() >= half(limit):
		return true
	case g.options.NoBreaker:
		return c.inFlight() >= limit
	}
	return c.sending.Load()+c.waited() >= limit
}

// probesSeparately reports whether the caller takes the due probe with Guard.Probe.
func (g *core) probesSeparately() bool {
	return g.window.phase == shut && (g.options.ActiveProbe || g.pace.why.connecting())
}

// issue takes a permit for a request after VerdictGo or VerdictProbe.
func (g *core) issue(now time.Duration, v Verdict, r Request) Permit {
	w := &g.window
	p := Permit{at: now, kind: permitTaken}
	t := g.trust(now, r)
	if g.mayTry(now, !r.Unfinished, t) {
		g.urls.trialEnd = now + overdue(&g.baseline)
	}
	switch {
	case v == VerdictProbe:
		p.probe = g.pace.begin(now, g.options)
		g.pace.probes++
	case w.phase == doubt:
		w.extraAt = now + g.doubtInterval()
		if !r.Unfinished {
			p.probe = g.pace.begin(now, g.options)
		}
	case w.phase == shut:
		w.extraAt = now + g.pace.patience(g.options)
	case w.limits() && !g.hasPlace(!r.Unfinished):
		w.extraAt = now + overdue(&g.baseline)
		w.uploads = max(w.uploads, g.counters.sending.Load()-half(int64(w.size))+1)
	}
	if w.binds() && (!r.Unfinished || t == silent) {
		g.urls.sent(now, r.Key)
	}
	if p.generation = g.counters.acquire(); r.Unfinished {
		p = g.counters.beginSending(p)
	}
	g.publish(now)
	return p
}

// next takes a permit for a request in the queue: of a URL that was answered lately before
// others, if that matters, and never of a silent one before others.
func (g *core) next(now time.Duration, line Line) (Permit, Verdict) {
	if !g.waiting.any() || g.admitsAt(now) > now {
		return Permit{}, VerdictBreakerOpen
	}
	least := silent // that must be known of its URL
	if g.tellsURLsApart(now) {
		least = known
	}
	for ; ; least-- {
		var v Verdict
		r, ok := line.Pick(func(r Request) bool {
			v = g.verdict(now, r, true)
			return v <= VerdictProbe && (least == silent || g.trust(now, r) >= least)
		})
		switch {
		case ok:
			g.waiting.add(-1, r)
			return g.issue(now, v, r), v
		case least == silent:
			g.waiting.noneFits = true
			return Permit{}, VerdictBreakerOpen
		}
	}
}

// admitsAt returns when a request in the queue may pass, as far as that does not depend on its
// URL; 0 means at once.
func (g *core) admitsAt(now time.Duration) time.Duration {
	silents, knowns := g.urls.count(now, overdue(&g.baseline))
	for t, n := range [...]int{silent: silents, unknown: 1, known: knowns} {
		whole := g.waiting.anyWhole() && g.passes(now, true, 0, trust(t), true) <= VerdictProbe
		if n > 0 && !g.waiting.noneFits && (whole || g.waiting.unfinished > 0 && g.passes(now, false, 0, trust(t), true) <= VerdictProbe) {
			return 0
		}
	}
	at := backoff.Forever
	for _, t := range [...]time.Duration{g.window.extraAt, g.urls.trialEnd, g.urls.turn(now, overdue(&g.baseline), 0)} {
		if t > now {
			at = min(at, t)
		}
	}
	return at
}

// nextEvent returns the next time at which something is due.
func (g *core) nextEvent(now time.Duration) time.Duration {
	w := &g.window
	at := backoff.Forever
	switch {
	case g.connections.check == checkDue:
		return 0
	case w.phase == shut:
		if g.probesSeparately() && g.pace.due() {
			return 0
		}
		at = g.pace.nextEvent()
	case w.limits():
		if at = w.waitedAt + latency.FoldEvery; g.waiting.any() {
			at = backoff.Forever
		}
	}
	if w.binds() || g.waiting.any() {
		at = min(at, g.counters.free(now, g.abandonedPeriod()))
	}
	if !g.waiting.any() {
		return at
	}
	if admits := g.admitsAt(now); admits <= now {
		return 0
	} else {
		at = min(at, admits)
	}
	switch w.phase {
	case doubt:
		at = min(at, max(g.silence.since+downAfter(&g.baseline), now+refreshInterval(&g.baseline)))
	case blind:
		at = min(at, w.blindAt(g.counters, &g.baseline))
	}
	return at
}
