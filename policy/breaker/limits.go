package breaker

// limits is the number of permits: the fixed limit of the options, and the concurrency
// limit while it binds.
type limits struct {
	concurrencyLimiter
	mode           ConcurrencyLimitMode
	fixed          int64
	countAbandoned bool // by the fixed limit too
}

// limited reports whether the permits are limited at all.
func (l *limits) limited() bool { return l.bound || l.mode == ConcurrencyLimitFixed }

// allows reports whether the limits leave a permit free.
func (l *limits) allows(c *counters) bool {
	return !l.atFixed(c) && (!l.bound || l.hasCapacity(c.inFlight()))
}

// atFixed reports whether a fixed limit is reached. Whoever sets a number means attempts that
// somebody waits for, as other proxies count them, and the circuit breaker protects an
// upstream that stopped. Without one only the limit does, so abandoned attempts count then.
// See docs/decisions/0036-fixed-limit.md.
func (l *limits) atFixed(c *counters) bool {
	if l.mode != ConcurrencyLimitFixed {
		return false
	}
	if l.countAbandoned {
		return c.inFlight() >= l.fixed
	}
	return c.awaited() >= l.fixed
}

// mayBind reports whether evidence of overload can make a limit bind.
func (l *limits) mayBind() bool { return l.mode == ConcurrencyLimitAdaptive && !l.bound }
