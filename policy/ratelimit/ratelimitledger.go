package ratelimit

import (
	"math"
	"time"
)

// Ledger counts the slots of a rate limit that many processes share. It follows GCRA, the
// generic cell rate algorithm (ITU-T I.371), in its virtual scheduling form. In production
// it is a script in the engine; a test compares the script with this type. Simulations use
// this type.
//
// It is not safe for concurrent use. now is the ledger's own time. The zero value is ready
// to use.
type Ledger struct {
	next        time.Duration // when the next slot is
	nextRequest time.Duration // when the next of all requests should arrive; the same rule
}

const (
	// LedgerRequestsPerSecond is the maximum number of requests per second to the ledger of
	// one rate limit. A request costs a redis-server 18 us of CPU (7.0.15, four
	// connections, one request at a time each), so this is 5 % of a core.
	LedgerRequestsPerSecond = 3000
	// RateLimitMaxRest is the longest rest between two requests: enough for 15000 busy
	// processes.
	RateLimitMaxRest = 5 * time.Second
)

// Lease answers a request. It counts slots used without a lease, takes back leased slots
// not used, and leases as many slots as begin within the horizon.
//
// The response includes how long the process rests before its next request, which grows
// with the number of processes. For a rest of more than RateLimitRequestInterval it gets
// slots spread over the rest: its share of the rate limit, as far as it is likely to need
// it, and more if the horizon has room.
func (l *Ledger) Lease(now time.Duration, a LeaseRequest) LeaseGrant {
	latest := now + RateLimitHorizon
	most := latest + 2*RateLimitHorizon + a.Gap // anything further ahead is an error or long past
	next := min(max(l.next, now), most+RateLimitMaxRest)
	next = max(now, min(next+a.Gap*time.Duration(a.Charge), max(next, most)))
	g := LeaseGrant{Ahead: next - now, Rest: l.rest(now, a.Every)}
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

// rest counts a request and returns how long the process rests before its next.
func (l *Ledger) rest(now, least time.Duration) time.Duration {
	l.nextRequest = max(now, min(l.nextRequest, now+RateLimitMaxRest)) + time.Second/LedgerRequestsPerSecond
	return min(max(l.nextRequest-now, least), RateLimitMaxRest)
}
