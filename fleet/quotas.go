package fleet

import (
	"context"
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

// lease asks all questions at once. While the engine does not answer nobody
// waits for it to.
func (f *Fleet) lease(ctx context.Context, asks []policy.QuotaAsk, local Local) {
	var all sync.WaitGroup
	for _, a := range asks {
		if !f.link.allBack() {
			local.FailQuota(a.Key)
			continue
		}
		all.Go(func() {
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
	gap := strconv.FormatFloat(float64(a.Gap)/float64(time.Microsecond), 'f', 3, 64)
	reply, err := f.link.run(ctx, leased, []string{f.quotaKey(a.Key)}, gap, a.Want, a.Charge, policy.QuotaHorizon.Microseconds())
	if err != nil {
		return policy.QuotaGrant{}, err
	}
	list, _ := reply.([]any)
	if len(list) != 2 {
		return policy.QuotaGrant{}, errReply
	}
	slots, ok := list[0].(int64)
	ahead, ok2 := list[1].(int64)
	if !ok || !ok2 || slots < 0 || slots > int64(a.Want) || ahead < 0 {
		return policy.QuotaGrant{}, errReply
	}
	return policy.QuotaGrant{Slots: int(slots), Ahead: time.Duration(ahead) * time.Microsecond}, nil
}
