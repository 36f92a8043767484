package settings

import "github.com/retryproxy/retryproxy/proxy/admission"

// RateLimitQueue returns the queue of a key, or nil.
func (n *Settings) RateLimitQueue(key uint64) *admission.RateLimitQueue {
	for _, s := range n.AllRateLimits {
		if q := s.Known(key); q != nil {
			return q
		}
	}
	return nil
}

// RateLimitStats returns the state of all rate limits.
func (n *Settings) RateLimitStats() []admission.RateLimitStats {
	var all []admission.RateLimitStats
	permit := map[[2]string]int{}
	for _, s := range n.AllRateLimits {
		one := s.Stats()
		id := [2]string{one.Upstream, one.Rate}
		i, known := permit[id]
		if !known {
			permit[id] = len(all)
			all = append(all, one)
			continue
		}
		all[i].Waiting += one.Waiting
		all[i].Longest = max(all[i].Longest, one.Longest)
		all[i].Keys += one.Keys
		all[i].Tokens += one.Tokens
		all[i].TokenLimit += one.TokenLimit
		all[i].State = all[i].State.Plus(one.State)
	}
	return all
}

// rateLimitOf returns the rate limit that routes with the same rate and key to the same upstream
// share. It takes over the waiters of the previous version. It returns nil if the route has none.
func (n *Settings) rateLimitOf(r *Route) *admission.RateLimits {
	if !r.RateLimit.Limited() {
		return nil
	}
	key := admission.RateLimitSeed(r.Upstream.String(), r.Name, r.RateLimit)
	if old := n.before; n.AllRateLimits[key] == nil && old != nil && old.AllRateLimits[key] != nil {
		n.AllRateLimits[key] = old.AllRateLimits[key]
	}
	if n.AllRateLimits[key] == nil {
		n.AllRateLimits[key] = admission.NewRateLimits(r.Upstream.String(), r.Name, r.RateLimit, r.QueueMax, n.process.Clock.Elapsed, n.RateLimitWanted)
	}
	return n.AllRateLimits[key]
}
