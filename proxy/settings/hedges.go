package settings

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// hedgeKey is what must stay unchanged over a reload for learnt latencies to stay valid.
type hedgeKey struct {
	route    string
	upstream upstreamKey
	after    hedge.After
}

// learnt returns the hedges of n with their learnt latencies. n may be nil.
func (n *Settings) learnt() map[hedgeKey]*hedge.Hedge {
	known := map[hedgeKey]*hedge.Hedge{}
	if n != nil {
		for _, r := range n.All {
			if r.Hedge != nil {
				known[hedgeKey{r.Name, r.UpstreamState.key, r.HedgeAfter}] = r.Hedge
			}
		}
	}
	return known
}

// hedgeOf returns the hedge of the route, with the latencies learnt under the previous
// configuration.
func (n *Settings) hedgeOf(r *RouteState) *hedge.Hedge {
	if r.HedgeAfter.Slow() && r.UpstreamState.Pool.Fixed() {
		return nil
	}
	if h := n.hedges[hedgeKey{r.Name, r.UpstreamState.key, r.HedgeAfter}]; h != nil {
		return h
	}
	return hedge.New(r.HedgeAfter)
}

// HedgePermit takes what a hedge of req needs: a slot of the rate limit, if there is one, and a permit.
// It never waits, and reports false if something is missing.
func (r *RouteState) HedgePermit(req *http1.Request, model []byte, now time.Duration) (breaker.Permit, bool) {
	var q *admission.RateLimitQueue
	var use admission.Use
	if s := r.RateLimits; s != nil {
		if q = s.QueueOf(s.KeyOf(req, model), now); !q.TakeNow(now, &use) {
			return breaker.Permit{}, false
		}
	}
	permit, ok := r.UpstreamState.Admission.AcquireNow(now)
	if !ok && q != nil {
		q.GiveBack(now, &use)
	}
	return permit, ok
}
