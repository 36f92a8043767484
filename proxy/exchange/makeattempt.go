package exchange

import (
	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/attempt"
)

// beginAttempt prepares x.att, which has its permit, for the n-th send of the request.
func (x *Exchange) beginAttempt(n int) {
	a := x.att
	a.Number, a.Endpoint, a.Addr, a.DialErr = int32(n), nil, "", nil
	a.Began = x.Clock // the request's begin, or the end of a wait before the attempt
	a.Fault, a.Span = attempt.Fault{}, nil
	x.stream = heldStream{}
	x.hedge.learns, x.hedge.after = false, 0
	if n > 1 {
		x.ContinueClient()
	}
	if x.report.Trace.Request != nil {
		a.Span = x.report.AttemptSpan(a, false)
	}
	if x.Dest.Hedge != nil {
		x.hedge.arm(x.situation())
	}
	if x.Dest.FaultInjection != nil {
		a.Fault = attempt.NewFault(x.report.DrawFault())
	}
}

// makeAttempt sends the request once, waits for the headers of the response, and sets res to the
// result. After a status the connection stays open and x.att.resp has the headers. After an
// attempt timeout it stays open for resume. fresh asks for a newly dialled connection.
func (x *Exchange) makeAttempt(res *policy.Attempt, fresh bool) {
	*res = policy.Attempt{}
	if x.att.Fault.Stalled {
		if res.Cause = x.stall(); res.Cause != policy.CauseStatus {
			return
		}
	}
	for {
		if res.Cause = x.connect(fresh); res.Cause != policy.CauseStatus {
			return
		}
		if !x.ClientStaysOn() {
			res.Cause = policy.CauseDial // it left during the dial: nothing is sent
			return
		}
		switch sent := x.send(); {
		case sent == attempt.Taken:
			x.receive(res)
			return
		case sent == attempt.NotTaken && x.att.Reused:
			x.upload.stop()
			x.att.Take().CloseStale() // from it the pool learns how long the upstream keeps idle connections
			res.Cause = policy.CauseIdleClose
			return
		case !x.att.Reused: // dialled just now: the next dial is another attempt
			x.dropUpstream()
			res.Cause = policy.CauseDial
			return
		}
		x.att.Take().CloseUnsent() // it was found closed: take the next one, since nothing was tried on it
		x.Tick()                   // its end may have come in place of the response
	}
}

// resume continues an attempt that timed out when no retry is possible. It then has all
// the time that is left.
func (x *Exchange) resume(res *policy.Attempt) {
	x.lastAttempt, x.hedge.after = true, 0
	if x.att.Fault.Stalled {
		x.makeAttempt(res, false)
		return
	}
	x.receive(res)
}

// writeUp sends the parts in one write if the system can. It shortens them to what was not
// taken.
func (u *upload) writeUp(parts [][]byte) (int, error) {
	u.att.ExtendWrite(u.r.Now(), u.r.BodyIdle())
	return u.att.Up.Writev(parts)
}
