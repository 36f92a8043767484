package breaker

// limits is the number of permits: the fixed limit of the options, and the concurrency
// limit while it binds.
type limits struct {
	concurrencyLimiter
	mode  ConcurrencyLimitMode
	fixed int64
}

// limited reports whether the permits are limited at all.
func (l *limits) limited() bool { return l.bound || l.mode == ConcurrencyLimitFixed }

// allows reports whether the limits leave a permit free.
func (l *limits) allows(inFlight int64) bool {
	return !l.atFixed(inFlight) && (!l.bound || l.hasCapacity(inFlight))
}

// atFixed reports whether a fixed limit is reached.
func (l *limits) atFixed(inFlight int64) bool {
	return l.mode == ConcurrencyLimitFixed && inFlight >= l.fixed
}

// mayBind reports whether evidence of overload can make a limit bind.
func (l *limits) mayBind() bool { return l.mode == ConcurrencyLimitAdaptive && !l.bound }
