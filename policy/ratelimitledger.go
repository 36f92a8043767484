package policy

import (
	"math"
	"time"
)

// RateLimitLedger keeps count of the slots of a rate limit that many processes share: the
// one place which knows when the next slot is. It is the rule of GCRA, the
// generic cell rate algorithm (ITU-T I.371), in its form as a virtual schedule. In
// production it is a script at the engine, which a test holds to this one; simulations
// use it as it is.
//
// It is not safe for concurrent use. now is the ledger's own time. The zero value
// is ready.
type RateLimitLedger struct {
	next        time.Duration // when the next slot is
	nextRequest time.Duration // when the next of all questions should come; the same rule
}

const (
	// LedgerRequestsPerSecond is how many questions a second the ledger of a rate limit wants at most. One
	// costs a redis-server 18 us of CPU (7.0.15, four connections, one question at a time each),
	// so these are 5 % of a core.
	LedgerRequestsPerSecond = 3000
	// RateLimitMaxRest is the longest rest between two questions: 15000 busy processes.
	RateLimitMaxRest = 5 * time.Second
)

// Lease answers a question: slots that were used without asking are counted,
// those not used are given back, and as many are leased as begin within the horizon.
//
// Who asks is told how long to rest from asking, the longer the more there are
// who do. For a rest of more than RateLimitRequestInterval it gets slots that are spread over it: its
// share of the rate limit, as far as it is likely to need that, and what it
// needs beyond while there is room.
func (l *RateLimitLedger) Lease(now time.Duration, a RateLimitLeaseRequest) RateLimitLeaseGrant {
	latest := now + RateLimitHorizon
	most := latest + 2*RateLimitHorizon + a.Gap // what is further ahead is a mistake, or long over
	next := min(max(l.next, now), most+RateLimitMaxRest)
	next = max(now, min(next+a.Gap*time.Duration(a.Charge), max(next, most)))
	g := RateLimitLeaseGrant{Ahead: next - now, Rest: l.rest(now, a.Every)}
	if g.Rest > RateLimitRequestInterval {
		need := int(math.Round(min(a.Rate*g.Rest.Seconds(), maxRateLimitAttempts)))
		room := int(max(0, latest-next) / a.Gap)
		g.Reserved = min(need, max(int(a.Shares(g.Rest)), room))
		next = min(next+a.Gap*time.Duration(g.Reserved), most+RateLimitMaxRest)
	}
	if next <= latest {
		g.Slots = min(a.Want, int((latest-next)/a.Gap)+1)
	}
	l.next = next + a.Gap*time.Duration(g.Slots)
	return g
}

// rest takes in a question, and says how long the process rests before its next.
func (l *RateLimitLedger) rest(now, least time.Duration) time.Duration {
	l.nextRequest = max(now, min(l.nextRequest, now+RateLimitMaxRest)) + time.Second/LedgerRequestsPerSecond
	return min(max(l.nextRequest-now, least), RateLimitMaxRest)
}
