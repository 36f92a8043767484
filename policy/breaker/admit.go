package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// The rules of admission: who passes the window.

// verdict returns the verdict for a request now. Requests in the queue take precedence over new
// ones.
func (g *core) verdict(now time.Duration, r Request, queued bool) Verdict {
	w, whole := &g.window, !r.Unfinished
	first := queued || !g.waiting.any() || whole && !g.waiting.anyWhole() // incomplete ones may wait for what it does not need
	if w.phase == shut {
		return g.verdictShut(now, r, first)
	}
	if g.atFixed(whole) {
		return g.refusal()
	}
	switch {
	case w.phase == open && (first || g.options.ConcurrencyLimit != ConcurrencyLimitFixed):
		return VerdictGo
	case w.phase == open:
		return VerdictAtLimit
	case g.mayTry(now, r): // of a URL that was answered lately, whoever waits
		return VerdictGo
	case w.phase == doubt && first && now >= w.extraAt:
		return VerdictGo
	case w.phase == doubt:
		return g.refusal()
	case g.trust(now, r) == silent:
		if now >= g.urls.silentAt {
			return VerdictGo
		}
	case first && g.hasPlace(whole), first && now >= w.extraAt:
		return VerdictGo
	}
	return g.refusal()
}

// refusal returns the verdict for a request that has to wait although the window is not shut.
func (g *core) refusal() Verdict {
	switch {
	case g.window.phase == doubt && !g.options.NoBreaker, g.window.recovering:
		return VerdictSuspect
	}
	return VerdictAtLimit
}

// verdictShut returns the verdict for a request while the window is shut.
func (g *core) verdictShut(now time.Duration, r Request, first bool) Verdict {
	switch {
	case g.probesSeparately():
	case !r.Unfinished && (first && g.pace.due() || g.mayTry(now, r)):
		return VerdictProbe
	case r.Unfinished && first && g.pace.due() && !g.waiting.anyWhole() && now >= g.window.extraAt && !g.atFixed(false):
		return VerdictGo
	case now < g.urls.trialEnd:
		return VerdictSuspect // in a moment more is known
	}
	return VerdictBreakerOpen
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
func (g *core) mayTry(now time.Duration, r Request) bool {
	switch {
	case r.Unfinished || now < g.urls.trialEnd || !g.tellsURLsApart() || g.trust(now, r) != known:
		return false
	case g.window.phase == shut:
		return !g.probesSeparately()
	case g.window.phase == doubt:
		return true
	}
	return g.urls.anyDoubtful(now, overdue(&g.baseline))
}

// tellsURLsApart reports whether a request may pass before others because of its URL. With
// Options.After failures stop all of them, and then all keep the order of the queue.
func (g *core) tellsURLsApart() bool {
	return g.options.After == 0 || g.window.phase == doubt || g.pace.why == OpenedByStall
}

// atFixed reports whether a fixed limit is reached. Whoever sets a number means attempts that
// somebody waits for, as other proxies count them, and the circuit breaker protects an
// upstream that stopped. Without one only the limit does, so abandoned attempts count then.
// Incomplete requests take at most half of it, so that slow uploads cannot hold all
// permits. See docs/decisions/0036-fixed-limit.md.
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
	return c.inFlight()-c.abandoned.count() >= limit
}

// probesSeparately reports whether the caller takes the due probe with Guard.Probe.
func (g *core) probesSeparately() bool {
	return g.window.phase == shut && (g.options.ActiveProbe || g.pace.why.connecting())
}

// issue takes a permit for a request after VerdictGo or VerdictProbe.
func (g *core) issue(now time.Duration, v Verdict, r Request) Permit {
	w := &g.window
	p := Permit{at: now, kind: permitTaken}
	number := uint32(g.counters.acquired.Load()) | 1<<31 // another one for each probe, and never 0
	if g.mayTry(now, r) {
		g.urls.trialEnd = now + overdue(&g.baseline)
	} else if w.binds() && w.phase != shut && g.trust(now, r) == silent {
		g.urls.silentAt = now + silentEvery
	}
	switch {
	case v == VerdictProbe:
		p.probe = number
		g.pace.probes++
	case w.phase == doubt:
		w.extraAt = now + g.doubtInterval()
		if !r.Unfinished {
			p.probe = number
		}
	case w.phase == shut:
		w.extraAt = now + g.pace.patience(g.options)
	case w.binds() && !g.hasPlace(!r.Unfinished):
		w.extraAt = now + overdue(&g.baseline)
		w.uploads = max(w.uploads, g.counters.sending.Load()-half(int64(w.size))+1)
	}
	if p.probe != 0 {
		g.pace.begin(now, number, g.options)
	}
	if w.binds() && !r.Unfinished {
		g.urls.sent(now, r.Key)
	}
	g.counters.acquired.Add(1)
	if r.Unfinished {
		p.kind = permitSending
		g.counters.sending.Add(1)
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
	if g.tellsURLsApart() && (g.window.phase == doubt || g.window.phase == shut || g.urls.anyDoubtful(now, overdue(&g.baseline))) {
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
	w := &g.window
	at := backoff.Forever
	may := func(possible bool, t time.Duration) {
		if possible && (t > now || !g.waiting.noneFits) {
			at = min(at, t)
		}
	}
	if w.phase == shut {
		if g.probesSeparately() {
			return at
		}
		may(g.pace.due() && g.waiting.anyWhole(), 0)
		may(g.pace.due() && !g.waiting.anyWhole() && !g.atFixed(false), w.extraAt)
		_, knowns := g.urls.count(now, overdue(&g.baseline))
		may(knowns > 0 && g.tellsURLsApart(), g.urls.trialEnd)
		return at
	}
	if g.atFixed(true) {
		return at
	}
	silents, knowns := 0, 0
	if w.binds() {
		silents, knowns = g.urls.count(now, overdue(&g.baseline))
	}
	whole := g.waiting.anyWhole()
	may(w.phase == open && (whole || !g.atFixed(false)), 0)
	may(knowns > 0 && g.tellsURLsApart() && (w.phase == doubt || g.urls.anyDoubtful(now, overdue(&g.baseline))), g.urls.trialEnd)
	may(w.phase == doubt, w.extraAt)
	may(silents > 0 && w.phase != doubt, g.urls.silentAt)
	if w.phase == start || w.phase == seek {
		may(g.hasPlace(whole), 0)
		may(true, w.extraAt)
	}
	return at
}

// nextEvent returns the next time at which something is due.
func (g *core) nextEvent(now time.Duration) time.Duration {
	w := &g.window
	at := backoff.Forever
	switch {
	case w.phase == shut:
		if g.probesSeparately() && g.pace.due() {
			return 0
		}
		at = g.pace.nextEvent()
	case w.phase == start || w.phase == seek:
		at = w.reachedAt + unreachedTime
		if g.waiting.any() || w.full(g.counters) {
			at = backoff.Forever
		}
	}
	if n := &g.counters.abandoned; n.count() > 0 && (w.binds() || g.waiting.any()) {
		at = min(at, n.began+g.abandonedPeriod())
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
		at = min(at, max(g.silence.since()+downAfter(&g.baseline), now+refreshInterval(&g.baseline)))
	case start:
		at = min(at, w.blindAt(g.counters, &g.baseline))
	}
	return at
}
