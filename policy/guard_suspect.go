package policy

import "time"

// suspectState is the time between a silence that is surprising and one that says that
// the upstream is down. An upstream that stopped and one that only became slower
// look the same until the first response; to take the one for the other costs
// clients of a healthy upstream their responses, and a limit that is
// learnt from it costs more of them. So whoever comes waits, and one is let
// through every suspectInterval: should the upstream be slow, their responses keep coming
// one by one, and should it be down, it has a few more to work off.
type suspectState struct {
	on            bool
	mayAdmit      bool          // one may be let through
	trialUsed     bool          // one was, for its URL
	nextAdmitAt   time.Duration // when the next one may
	admitInterval time.Duration
}

const (
	// In doubt one is let through every suspectMinInterval; where fewer come, after
	// suspectGaps of the usual time between two, so that fifty proxies of little traffic hold back
	// as one of much does; but no later than after suspectMaxInterval.
	suspectMinInterval = 100 * time.Millisecond
	suspectGaps        = 4
	suspectMaxInterval = time.Second
	// A silence ends the doubt when it has lasted for downFrom and for
	// downTimes usual answers, but for no more than downMax: what took 100 ms
	// may take ten times as long. So a stopped upstream that took 100 ms
	// gets eight requests while suspect, and clients with 2 s of patience are still there when
	// the breaker is open. Clients know what they wait for, so leftLateUnknown of them who
	// left late end it at once.
	downFrom  = 1150 * time.Millisecond
	downTimes = 11
	downMax   = 10 * time.Second
)

// downAfter is how long a silence lasts that says that the upstream is down.
func downAfter(u *baseline) time.Duration {
	return max(downFrom, min(downTimes*u.median, downMax))
}

// suspectInterval is the time between two that are let through.
func suspectInterval(u *baseline) time.Duration {
	if u.rate <= 0 {
		return suspectMinInterval
	}
	return max(suspectMinInterval, min(time.Duration(suspectGaps/u.rate*float64(time.Second)), suspectMaxInterval))
}

// begin begins to doubt; it has no effect while there is doubt already.
func (d *suspectState) begin(now, every time.Duration) {
	if !d.on {
		*d = suspectState{on: true, admitInterval: every, nextAdmitAt: now + every}
	}
}

// expire lets one through when it is time.
func (d *suspectState) expire(now time.Duration) {
	if d.on && now >= d.nextAdmitAt {
		d.mayAdmit = true
	}
}

// nextEvent is when expire has something to do.
func (d *suspectState) nextEvent() time.Duration {
	if !d.on || d.mayAdmit {
		return Forever
	}
	return d.nextAdmitAt
}

// admitted notes that one was let through.
func (d *suspectState) admitted(now time.Duration) {
	if d.on {
		d.mayAdmit, d.nextAdmitAt = false, now+d.admitInterval
	}
}

// checkStall says what a silence means after a look: nothing, doubt, or that
// the upstream is down.
func (g *Guard) checkStall(now time.Duration) {
	s := &g.stall
	if !g.watchesStall() || s.suspicion(now, &g.baseline, g.awaitingResponse()) < suspicionThreshold {
		g.suspect = suspectState{}
		return
	}
	if !g.suspect.on {
		g.pace.begin(s.first())
	}
	if (s.leftLate >= leftLateUnknown || now-s.first() >= downAfter(&g.baseline)) && !g.oneURLStalled(now) {
		g.suspect = suspectState{}
		g.tripBreaker(now, OpenedByStall)
		return
	}
	g.suspect.begin(now, suspectInterval(&g.baseline))
}

// watchesStall says whether a silence can mean anything: what passes can be held back,
// by the breaker or by a limit that does not bind yet.
func (g *Guard) watchesStall() bool {
	if g.options.NoBreaker {
		return g.options.ConcurrencyLimit == ConcurrencyLimitAdaptive && !g.limiter.bound
	}
	return g.breaker.allowsRequests()
}

// responseSeen ends the doubt: something was answered.
func (g *Guard) responseSeen(e AttemptEnd) {
	if e.Kind == Responded && g.suspect.on {
		g.suspect = suspectState{}
	}
}
