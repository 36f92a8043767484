package fleet

import (
	"context"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
)

// RateLimitWanted is the function for proxy.Config.RateLimitWanted: slots are wanted for
// the first time. It does not block.
func (f *Fleet) RateLimitWanted() { notify(f.slotsWanted) }

// notify sends to a channel of capacity one, without blocking.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// leaseSlots leases slots of rate limits as they are wanted, until ctx ends.
// ratelimit.Limiter determines how often it asks, independent of the number of requests.
func (f *Fleet) leaseSlots(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		requests, next := local.RateLimitLeaseRequests(nil)
		f.lease(ctx, requests, local)
		if next <= 0 {
			next = time.Millisecond
		}
		f.awaitWanted(ctx, next)
	}
}

// awaitWanted waits until slots are wanted, or for d unless that is backoff.Forever.
func (f *Fleet) awaitWanted(ctx context.Context, d time.Duration) {
	var over <-chan time.Time
	if d != backoff.Forever {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-f.slotsWanted:
	case <-over:
	}
}

// lease sends all requests, leasesAtOnce at a time. It does not wait for an engine that
// does not respond. Until every process has reconnected, this one keeps to its own share and
// only reports what it uses: those that lease again earlier get no slots that it uses.
func (f *Fleet) lease(ctx context.Context, requests []ratelimit.LeaseRequest, local Local) {
	var all sync.WaitGroup
	running := make(chan struct{}, leasesAtOnce)
	for _, a := range requests {
		running <- struct{}{}
		rejoining := !f.link.allReconnected()
		if rejoining {
			a.Want, a.Rate, a.Owed = 0, 0, 0
		}
		if !f.link.up() || rejoining && a.Account != nil {
			<-running
			local.FailRateLimitLease(a.Key)
			continue
		}
		all.Go(func() {
			defer func() { <-running }()
			g, err := f.leaseOne(ctx, a)
			if err != nil || rejoining {
				local.FailRateLimitLease(a.Key)
				return
			}
			local.ApplyRateLimitLease(a.Key, g)
		})
	}
	all.Wait()
}

func (f *Fleet) leaseOne(ctx context.Context, a ratelimit.LeaseRequest) (ratelimit.LeaseGrant, error) {
	if a.Account != nil {
		b, err := f.balanceOf(ctx, a.Key, a.Account)
		return ratelimit.LeaseGrant{Balance: b}, err
	}
	micro := func(d time.Duration) string { return decimal(float64(d) / float64(time.Microsecond)) }
	reply, err := f.link.run(ctx, leaseScript, []string{f.key("ratelimit", a.Key)}, micro(a.Gap), a.Want, a.Charge, ratelimit.RateLimitHorizon.Microseconds(),
		micro(max(a.Share, a.Gap)), decimal(a.Rate), a.Every.Microseconds(),
		micro(time.Second/ratelimit.LedgerRequestsPerSecond), ratelimit.RateLimitMaxRest.Microseconds(), ratelimit.RateLimitRequestInterval.Microseconds(), decimal(a.Owed))
	if err != nil {
		return ratelimit.LeaseGrant{}, err
	}
	list, _ := reply.([]any)
	var n [4]int64
	if len(list) != len(n) {
		return ratelimit.LeaseGrant{}, errReply
	}
	for i := range n {
		var ok bool
		if n[i], ok = list[i].(int64); !ok || n[i] < 0 {
			return ratelimit.LeaseGrant{}, errReply
		}
	}
	if n[0] > int64(a.Want) {
		return ratelimit.LeaseGrant{}, errReply
	}
	return ratelimit.LeaseGrant{Slots: int(n[0]), Ahead: micros(n[1]), Reserved: int(n[2]), Rest: micros(n[3])}, nil
}
