package policy

import (
	"math"
	"time"
)

// QuotaLedger keeps count of the slots of a quota that many processes share: the
// one place which knows when the next slot is. It is the rule of GCRA, the
// generic cell rate algorithm (ITU-T I.371), in its form as a virtual schedule. In
// production it is a script at the engine, which a test holds to this one; simulations
// use it as it is.
//
// It is not safe for concurrent use. now is the ledger's own time. The zero value
// is ready.
type QuotaLedger struct {
	next time.Duration // when the next slot is
	asks time.Duration // when the next of all questions should come; the same rule
}

const (
	// QuotaQuestions is how many questions a second the ledger of a quota wants at most. One
	// costs a redis-server 18 us of CPU (7.0.15, four connections, one question at a time each),
	// so these are 5 % of a core.
	QuotaQuestions = 3000
	// QuotaRestMost is the longest rest between two questions: 15000 busy processes.
	QuotaRestMost = 5 * time.Second
)

// Lease answers a question: slots that were used without asking are counted,
// those not used are given back, and as many are leased as begin within the horizon.
//
// Who asks is told how long to rest from asking, the longer the more there are
// who do. For a rest of more than QuotaAskEvery it gets slots that are spread over it: its
// share of the quota, as far as it is likely to need that, and what it
// needs beyond while there is room.
func (l *QuotaLedger) Lease(now time.Duration, a QuotaAsk) QuotaGrant {
	latest := now + QuotaHorizon
	most := latest + 2*QuotaHorizon + a.Gap // what is further ahead is a mistake, or long over
	next := min(max(l.next, now), most+QuotaRestMost)
	next = max(now, min(next+a.Gap*time.Duration(a.Charge), max(next, most)))
	g := QuotaGrant{Ahead: next - now, Rest: l.rest(now, a.Every)}
	if g.Rest > QuotaAskEvery {
		need := int(math.Round(min(a.Rate*g.Rest.Seconds(), maxQuotaAttempts)))
		room := int(max(0, latest-next) / a.Gap)
		g.Reserved = min(need, max(int(a.Shares(g.Rest)), room))
		next = min(next+a.Gap*time.Duration(g.Reserved), most+QuotaRestMost)
	}
	if next <= latest {
		g.Slots = min(a.Want, int((latest-next)/a.Gap)+1)
	}
	l.next = next + a.Gap*time.Duration(g.Slots)
	return g
}

// rest takes in a question, and says how long the process rests before its next.
func (l *QuotaLedger) rest(now, least time.Duration) time.Duration {
	l.asks = max(now, min(l.asks, now+QuotaRestMost)) + time.Second/QuotaQuestions
	return min(max(l.asks-now, least), QuotaRestMost)
}
