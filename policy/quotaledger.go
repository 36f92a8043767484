package policy

import "time"

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
}

// Lease answers a question: slots that were used without asking are counted,
// those not used are given back, and as many are leased as begin within the horizon.
func (l *QuotaLedger) Lease(now time.Duration, a QuotaAsk) QuotaGrant {
	latest := now + QuotaHorizon
	next := max(l.next, now)
	next += a.Gap * time.Duration(a.Charge)
	next = max(now, min(next, latest+2*QuotaHorizon+a.Gap)) // what is further ahead is a mistake, or long over
	g := QuotaGrant{Ahead: next - now}
	if next <= latest {
		g.Slots = min(a.Want, int((latest-next)/a.Gap)+1)
	}
	l.next = next + a.Gap*time.Duration(g.Slots)
	return g
}
