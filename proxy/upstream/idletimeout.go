package upstream

import "time"

const (
	// DefaultIdleAge is how long a connection is kept idle unless the
	// upstream shows less patience: just under the 60 s after which load
	// balancers commonly drop an idle connection.
	DefaultIdleAge = 55 * time.Second

	// ageMargin is taken off the age at which an idle close was noticed: the
	// sweep notices it up to sweepPeriod late, and half a second is for the
	// request on its way.
	ageMargin = sweepPeriod + 500*time.Millisecond

	// ageFloor is the lowest learned limit. A close noticed at a lower age
	// teaches nothing: no server in common use is that impatient, so it was
	// a restart or a crash.
	ageFloor = 500 * time.Millisecond

	// ageBatch: closes within this time are one observation with the highest
	// of their ages, since a restart closes everything at once.
	ageBatch = sweepPeriod

	// ageForget is the time in which a learned limit doubles.
	ageForget = 10 * time.Minute
)

// keepAliveLimit is the idle age allowed when the upstream announced timeout:
// one second less, for the request on its way, but at least half of it.
func keepAliveLimit(timeout time.Duration) time.Duration {
	return max(timeout-time.Second, timeout/2)
}

// idleTimeoutLearner learns how long the upstream keeps an idle connection, from the
// ages at which connections were found closed. Not safe for concurrent use.
//
// The rule: limit = max(last, the one before) - ageMargin, within
// [ageFloor, max], where an observation is the highest age in a batch. Taking
// the higher of the last two means that one odd close (a restart) teaches
// nothing alone, while a server's idle timeout, being always the same, is
// learned by its second close. The limit then doubles every ageForget,
// linearly in between, so that it is slowly forgotten; once it passes the
// upstream's patience again, the next close brings it back.
type idleTimeoutLearner struct {
	max        time.Duration // limit when nothing was learned
	last, prev time.Duration // observations; 0 = none
	began      time.Duration // when last's batch began
}

// observe takes in an idle close noticed at pool time now on a connection
// idle for age.
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

// limit gives the idle age allowed at pool time now.
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
