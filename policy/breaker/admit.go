package breaker

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/latency"
)

// The rules of admission: who passes the window.

// verdict returns the verdict for a request now. Requests in the queue take precedence over new
// ones.
func (c *core) verdict(now time.Duration, r Request, queued bool) Verdict {
	first := queued || !c.waiting.any() || !r.Unfinished && !c.waiting.anyWhole() // incomplete ones may wait for what it does not need
	return c.passes(now, !r.Unfinished, r.Key, c.trust(now, r), first)
}

// passes returns the verdict for a request, complete or not, of whose URL t is known; with key 0 it is any.
func (c *core) passes(now time.Duration, whole bool, key uint32, t trust, first bool) Verdict {
	w := &c.window
	extra := now >= w.extraAt
	switch {
	case w.phase == shut && c.probesSeparately():
	case w.phase == shut && whole && (first && c.pace.due() || c.mayTry(now, whole, t)):
		return VerdictProbe
	case w.phase == shut && !whole && first && c.pace.due() && extra && !c.atFixed(false):
		return VerdictGo
	case w.phase == shut && now < c.urls.trialEnd:
		return VerdictSuspect // in a moment more is known
	case w.phase == shut:
	case c.atFixed(whole):
	case w.phase == open && (first || c.options.ConcurrencyLimit != ConcurrencyLimitFixed),
		c.mayTry(now, whole, t), // whoever waits
		w.phase == doubt && extra,
		w.limits() && t == silent && now >= c.urls.turn(now, overdue(&c.baseline), key),
		w.limits() && t != silent && first && (c.hasPlace(whole) || extra):
		return VerdictGo
	}
	switch {
	case w.phase == shut:
		return VerdictBreakerOpen
	case w.phase == doubt && !c.options.NoBreaker, w.phase == start, w.recovering():
		return VerdictSuspect
	}
	return VerdictAtLimit
}

// hasPlace reports whether a place is free for a request, complete or not.
func (c *core) hasPlace(whole bool) bool {
	return !c.window.full(c.counters) && (whole || !c.window.uploadsFull(c.counters))
}

// trust returns what is known of the URL of r.
func (c *core) trust(now time.Duration, r Request) trust {
	return c.urls.trust(now, overdue(&c.baseline), r.Key)
}

// mayTry reports whether a request may pass beside the window, because its URL was answered
// lately: its response tells at once whether the upstream or only another URL is silent. One
// at a time does.
func (c *core) mayTry(now time.Duration, whole bool, t trust) bool {
	return whole && t == known && now >= c.urls.trialEnd && c.tellsURLsApart(now) && !c.probesSeparately()
}

// tellsURLsApart reports whether a request may pass before others because of its URL. With
// Options.After failures stop all of them, and then all keep the order of the queue.
func (c *core) tellsURLsApart(now time.Duration) bool {
	w := &c.window
	return w.binds() && (c.options.After == 0 || w.phase == doubt || c.pace.why == OpenedByStall) &&
		(!w.limits() || c.urls.anyDoubtful(now, overdue(&c.baseline)))
}

// atFixed reports whether a fixed limit is reached. Whoever sets a number means attempts that
// somebody waits for, as other proxies count them, and the circuit breaker protects an
// upstream that stopped. Without one only the limit does, so abandoned attempts count then.
// Incomplete requests take at most half of it, so that slow uploads cannot hold all
// permits. See docs/explanation/breaker.md.
func (c *core) atFixed(whole bool) bool {
	limit, n := int64(c.options.FixedLimit), c.counters
	switch {
	case c.options.ConcurrencyLimit != ConcurrencyLimitFixed:
		return false
	case !whole && n.sending.Load() >= half(limit):
		return true
	case c.options.NoBreaker:
		return n.inFlight() >= limit
	}
	return n.sending.Load()+n.waited() >= limit
}

// probesSeparately reports whether the caller takes the due probe with Guard.Probe.
func (c *core) probesSeparately() bool {
	return c.window.phase == shut && (c.options.ActiveProbe || c.pace.why.connecting())
}

// issue takes a permit for a request after VerdictGo or VerdictProbe.
func (c *core) issue(now time.Duration, v Verdict, r Request) Permit {
	w := &c.window
	p := Permit{at: now, kind: permitTaken}
	t := c.trust(now, r)
	if c.mayTry(now, !r.Unfinished, t) {
		c.urls.trialEnd = now + overdue(&c.baseline)
	}
	switch {
	case v == VerdictProbe:
		p.probe = c.pace.begin(now, c.options)
		c.pace.probes++
	case w.phase == doubt:
		w.extraAt = now + c.doubtInterval()
		if !r.Unfinished {
			p.probe = c.pace.begin(now, c.options)
		}
	case w.phase == shut:
		w.extraAt = now + c.pace.patience(c.options)
	case w.limits() && !c.hasPlace(!r.Unfinished):
		w.extraAt = now + overdue(&c.baseline)
		w.uploads = max(w.uploads, c.counters.sending.Load()-half(int64(w.size))+1)
	}
	if w.binds() && (!r.Unfinished || t == silent) {
		c.urls.sent(now, r.Key)
	}
	if p.generation = c.counters.acquire(); r.Unfinished {
		p = c.counters.beginSending(p)
	}
	c.publish(now)
	return p
}

// next takes a permit for a request in the queue: of a URL that was answered lately before
// others, if that matters, and never of a silent one before others.
func (c *core) next(now time.Duration, line Line) (Permit, Verdict) {
	if !c.waiting.any() || c.admitsAt(now) > now {
		return Permit{}, VerdictBreakerOpen
	}
	least := silent // that must be known of its URL
	if c.tellsURLsApart(now) {
		least = known
	}
	for ; ; least-- {
		var v Verdict
		r, ok := line.Pick(func(r Request) bool {
			v = c.verdict(now, r, true)
			return v <= VerdictProbe && (least == silent || c.trust(now, r) >= least)
		})
		switch {
		case ok:
			c.waiting.add(-1, r)
			return c.issue(now, v, r), v
		case least == silent:
			c.waiting.noneFits = true
			return Permit{}, VerdictBreakerOpen
		}
	}
}

// admitsAt returns when a request in the queue may pass, as far as that does not depend on its
// URL; 0 means at once.
func (c *core) admitsAt(now time.Duration) time.Duration {
	silents, knowns := c.urls.count(now, overdue(&c.baseline))
	for t, n := range [...]int{silent: silents, unknown: 1, known: knowns} {
		whole := c.waiting.anyWhole() && c.passes(now, true, 0, trust(t), true) <= VerdictProbe
		if n > 0 && !c.waiting.noneFits && (whole || c.waiting.unfinished > 0 && c.passes(now, false, 0, trust(t), true) <= VerdictProbe) {
			return 0
		}
	}
	at := backoff.Forever
	for _, t := range [...]time.Duration{c.window.extraAt, c.urls.trialEnd, c.urls.turn(now, overdue(&c.baseline), 0)} {
		if t > now {
			at = min(at, t)
		}
	}
	return at
}

// nextEvent returns the next time at which something is due.
func (c *core) nextEvent(now time.Duration) time.Duration {
	w := &c.window
	at := backoff.Forever
	switch {
	case c.connections.check == checkDue:
		return 0
	case w.phase == shut:
		if c.probesSeparately() && c.pace.due() {
			return 0
		}
		at = c.pace.nextEvent()
	case w.limits():
		if at = w.waitedAt + latency.FoldEvery; c.waiting.any() {
			at = backoff.Forever
		}
	}
	if w.binds() || c.waiting.any() {
		at = min(at, c.counters.free(now, c.abandonedPeriod()))
	}
	if !c.waiting.any() {
		return at
	}
	if admits := c.admitsAt(now); admits <= now {
		return 0
	} else {
		at = min(at, admits)
	}
	switch w.phase {
	case doubt:
		at = min(at, max(c.silence.since+downAfter(&c.baseline), now+refreshInterval(&c.baseline)))
	case blind:
		at = min(at, w.blindAt(c.counters, &c.baseline))
	}
	return at
}
