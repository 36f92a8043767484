package policy

import "time"

// doubt is the time between a silence that is surprising and one that says that
// the upstream is down. An upstream that stopped and one that only became slower
// look the same until the first answer; to take the one for the other costs
// callers of a healthy upstream their answers, and a limit that is
// learnt from it costs more of them. So whoever comes waits, and one is let
// through every doubtEvery: should the upstream be slow, their answers keep coming
// one by one, and should it be down, it has a few more to work off.
type doubt struct {
	on    bool
	free  bool          // one may be let through
	tried bool          // one was, for its URL
	next  time.Duration // when the next one may
	every time.Duration
}

const (
	// In doubt one is let through every doubtLeast; where fewer come, after
	// doubtGaps of the usual time between two, so that fifty proxies of little traffic hold back
	// as one of much does; but no later than after doubtMost.
	doubtLeast = 100 * time.Millisecond
	doubtGaps  = 4
	doubtMost  = time.Second
	// A silence ends the doubt when it has lasted for downFrom and for
	// downTimes usual answers, but for no more than downMost: what took 100 ms
	// may take ten times as long. So a stopped upstream that took 100 ms
	// gets eight requests in doubt, and callers with 2 s of patience are still there when
	// the gate is closed. Callers know what they wait for, so leftNothing of them who
	// left late end it at once.
	downFrom  = 1150 * time.Millisecond
	downTimes = 11
	downMost  = 10 * time.Second
)

// downAfter is how long a silence lasts that says that the upstream is down.
func downAfter(u *usual) time.Duration {
	return max(downFrom, min(downTimes*u.median, downMost))
}

// doubtEvery is the time between two that are let through.
func doubtEvery(u *usual) time.Duration {
	if u.rate <= 0 {
		return doubtLeast
	}
	return max(doubtLeast, min(time.Duration(doubtGaps/u.rate*float64(time.Second)), doubtMost))
}

// begin begins to doubt; it has no effect while there is doubt already.
func (d *doubt) begin(now, every time.Duration) {
	if !d.on {
		*d = doubt{on: true, every: every, next: now + every}
	}
}

// expire lets one through when it is time.
func (d *doubt) expire(now time.Duration) {
	if d.on && now >= d.next {
		d.free = true
	}
}

// event is when expire has something to do.
func (d *doubt) event() time.Duration {
	if !d.on || d.free {
		return Forever
	}
	return d.next
}

// let notes that one was let through.
func (d *doubt) let(now time.Duration) {
	if d.on {
		d.free, d.next = false, now+d.every
	}
}

// judgeSilence says what a silence means after a look: nothing, doubt, or that
// the upstream is down.
func (g *Guard) judgeSilence(now time.Duration) {
	s := &g.silence
	if !g.watches() || s.surprise(now, &g.usual, g.answerable()) < enoughSurprise {
		g.doubt = doubt{}
		return
	}
	if !g.doubt.on {
		g.pace.begin(s.first())
	}
	if (s.left >= leftNothing || now-s.first() >= downAfter(&g.usual)) && !g.oneURLSilent(now) {
		g.doubt = doubt{}
		g.shut(now, ClosedByStall)
		return
	}
	g.doubt.begin(now, doubtEvery(&g.usual))
}

// watches says whether a silence can mean anything: what passes can be held back,
// by the gate or by a limit that does not bind yet.
func (g *Guard) watches() bool {
	if g.options.NoGate {
		return g.options.Limit == LimitAdaptive && !g.limiter.bound
	}
	return g.gate.passing()
}

// heard ends the doubt: something was answered.
func (g *Guard) heard(e Ending) {
	if e.Kind == Answered && g.doubt.on {
		g.doubt = doubt{}
	}
}
