package upstream

import "time"

const (
	// DefaultIdleAge is how long a connection is kept idle unless the upstream closes
	// earlier: just under the 60 s after which load balancers commonly drop an idle
	// connection.
	DefaultIdleAge = 55 * time.Second

	// ageMargin is subtracted from the age at which an idle close was detected. The sweep
	// detects it up to sweepPeriod late, and half a second is for the request on its way.
	ageMargin = sweepPeriod + 500*time.Millisecond

	// ageFloor is the lowest learned limit. A close at a lower age is ignored: no common
	// server has such a short timeout, so it was a restart or a crash.
	ageFloor = 500 * time.Millisecond

	// ageBatch: closes within this time are one observation with their highest age, since a
	// restart closes all connections at once.
	ageBatch = sweepPeriod

	// ageForget is the time in which a learned limit doubles.
	ageForget = 10 * time.Minute
)

// keepAliveLimit returns the idle age allowed for an announced timeout: one second less,
// for the request on its way, but at least half of it.
func keepAliveLimit(timeout time.Duration) time.Duration {
	return max(timeout-time.Second, timeout/2)
}

// idleTimeoutLearner learns how long the upstream keeps an idle connection, from the ages
// at which connections were found closed. It is not safe for concurrent use.
//
// The rule: limit = max(last, prev) - ageMargin, within [ageFloor, max]. An observation is
// the highest age in a batch. Because of the max, a single unusual close (a restart) has no
// effect, while a constant idle timeout is learned by the second close. The limit then
// doubles every ageForget, linearly in between, so that it is slowly forgotten. If it
// exceeds the upstream's timeout again, the next close corrects it.
type idleTimeoutLearner struct {
	max        time.Duration // limit while nothing is learned
	last, prev time.Duration // observations; 0 = none
	began      time.Duration // when the batch of last began
}

// observe records an idle close detected at pool time now on a connection idle for age.
func (p *idleTimeoutLearner) observe(now, age time.Duration) {
	if age < ageFloor {
		return
	}
	if p.last != 0 && now-p.began < ageBatch {
		p.last = max(p.last, age)
		return
	}
	p.prev, p.last, p.began = p.last, age, now
}

// limit returns the idle age allowed at pool time now.
func (p *idleTimeoutLearner) limit(now time.Duration) time.Duration {
	if p.prev == 0 {
		return p.max
	}
	l := max(max(p.last, p.prev)-ageMargin, ageFloor)
	for past := now - p.began; past > 0 && l < p.max; past -= ageForget {
		l += time.Duration(float64(l) * float64(min(past, ageForget)) / float64(ageForget))
	}
	return min(l, p.max)
}
