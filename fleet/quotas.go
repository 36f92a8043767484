package fleet

import (
	"context"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// QuotaWanted is for proxy.Config.QuotaWanted: slots are wanted where none
// were. It does not block.
func (f *Fleet) QuotaWanted() { poke(f.wanted) }

// poke leaves a note in a channel with room for one.
func poke(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func (f *Fleet) quotaKey(key uint64) string {
	return f.prefix + "quota:" + strconv.FormatUint(key, 16)
}

// leaseSlots leases slots of quotas as they are wanted, until ctx ends. How often
// it asks is policy.Quota's to say, and not how many requests there are.
func (f *Fleet) leaseSlots(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		asks, next := local.QuotaAsks(nil)
		f.lease(ctx, asks, local)
		if next != policy.Forever {
			sleep(ctx, max(next, time.Millisecond))
			continue
		}
		select {
		case <-ctx.Done():
		case <-f.wanted:
		}
	}
}

// lease asks all questions, leasesAtOnce at a time. While the engine does not answer nobody
// waits for it to.
func (f *Fleet) lease(ctx context.Context, asks []policy.QuotaAsk, local Local) {
	var all sync.WaitGroup
	turns := make(chan struct{}, leasesAtOnce)
	for _, a := range asks {
		turns <- struct{}{}
		if !f.link.allBack() {
			<-turns
			local.FailQuota(a.Key)
			continue
		}
		all.Go(func() {
			defer func() { <-turns }()
			g, err := f.leaseOne(ctx, a)
			if err != nil {
				local.FailQuota(a.Key)
				return
			}
			local.GrantQuota(a.Key, g)
		})
	}
	all.Wait()
}

func (f *Fleet) leaseOne(ctx context.Context, a policy.QuotaAsk) (policy.QuotaGrant, error) {
	micro := func(d time.Duration) string {
		return strconv.FormatFloat(float64(d)/float64(time.Microsecond), 'f', 3, 64)
	}
	reply, err := f.link.run(ctx, leased, []string{f.quotaKey(a.Key)}, micro(a.Gap), a.Want, a.Charge, policy.QuotaHorizon.Microseconds(),
		micro(max(a.Share, a.Gap)), strconv.FormatFloat(a.Rate, 'f', 4, 64), a.Every.Microseconds(),
		micro(time.Second/policy.QuotaQuestions), policy.QuotaRestMost.Microseconds(), policy.QuotaAskEvery.Microseconds(), strconv.FormatFloat(a.Owed, 'f', 4, 64))
	if err != nil {
		return policy.QuotaGrant{}, err
	}
	list, _ := reply.([]any)
	var n [4]int64
	if len(list) != len(n) {
		return policy.QuotaGrant{}, errReply
	}
	for i := range n {
		var ok bool
		if n[i], ok = list[i].(int64); !ok || n[i] < 0 {
			return policy.QuotaGrant{}, errReply
		}
	}
	if n[0] > int64(a.Want) {
		return policy.QuotaGrant{}, errReply
	}
	micros := func(n int64) time.Duration { return time.Duration(min(n, math.MaxInt64/2000)) * time.Microsecond }
	return policy.QuotaGrant{Slots: int(n[0]), Ahead: micros(n[1]), Reserved: int(n[2]), Rest: micros(n[3])}, nil
}
