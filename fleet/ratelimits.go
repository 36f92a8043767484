package fleet

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// RateLimitWanted is for proxy.Config.RateLimitWanted: slots are wanted where none
// were. It does not block.
func (f *Fleet) RateLimitWanted() { notify(f.slotsWanted) }

// notify leaves a note in a channel with room for one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (f *Fleet) rateLimitKey(key uint64) string {
	return f.prefix + "ratelimit:" + strconv.FormatUint(key, 16)
}

// leaseSlots leases slots of rate limits as they are wanted, until ctx ends. How often
// it asks is policy.Rate limit's to say, and not how many requests there are.
func (f *Fleet) leaseSlots(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		asks, next := local.RateLimitLeaseRequests(nil)
		f.lease(ctx, asks, local)
		if next != policy.Forever {
			sleep(ctx, max(next, time.Millisecond))
			continue
		}
		select {
		case <-ctx.Done():
		case <-f.slotsWanted:
		}
	}
}

// lease asks all questions, leasesAtOnce at a time. While the engine does not answer nobody
// waits for it to.
func (f *Fleet) lease(ctx context.Context, asks []policy.RateLimitLeaseRequest, local Local) {
	var all sync.WaitGroup
	turns := make(chan struct{}, leasesAtOnce)
	for _, a := range asks {
		turns <- struct{}{}
		if !f.link.allReconnected() {
			<-turns
			local.FailRateLimitLease(a.Key)
			continue
		}
		all.Go(func() {
			defer func() { <-turns }()
			g, err := f.leaseOne(ctx, a)
			if err != nil {
				local.FailRateLimitLease(a.Key)
				return
			}
			local.ApplyRateLimitLease(a.Key, g)
		})
	}
	all.Wait()
}

func (f *Fleet) leaseOne(ctx context.Context, a policy.RateLimitLeaseRequest) (policy.RateLimitLeaseGrant, error) {
	micro := func(d time.Duration) string {
		return strconv.FormatFloat(float64(d)/float64(time.Microsecond), 'f', 3, 64)
	}
	reply, err := f.link.run(ctx, leaseScript, []string{f.rateLimitKey(a.Key)}, micro(a.Gap), a.Want, a.Charge, policy.RateLimitHorizon.Microseconds(),
		micro(max(a.Share, a.Gap)), strconv.FormatFloat(a.Rate, 'f', 4, 64), a.Every.Microseconds(),
		micro(time.Second/policy.LedgerRequestsPerSecond), policy.RateLimitMaxRest.Microseconds(), policy.RateLimitRequestInterval.Microseconds(), strconv.FormatFloat(a.Owed, 'f', 4, 64))
	if err != nil {
		return policy.RateLimitLeaseGrant{}, err
	}
	list, _ := reply.([]any)
	var n [4]int64
	if len(list) != len(n) {
		return policy.RateLimitLeaseGrant{}, errReply
	}
	for i := range n {
		var ok bool
		if n[i], ok = list[i].(int64); !ok || n[i] < 0 {
			return policy.RateLimitLeaseGrant{}, errReply
		}
	}
	if n[0] > int64(a.Want) {
		return policy.RateLimitLeaseGrant{}, errReply
	}
	micros := func(n int64) time.Duration { return time.Duration(min(n, math.MaxInt64/2000)) * time.Microsecond }
	return policy.RateLimitLeaseGrant{Slots: int(n[0]), Ahead: micros(n[1]), Reserved: int(n[2]), Rest: micros(n[3])}, nil
}
