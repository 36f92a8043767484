package fleet

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// ProbeTurnWanted is for proxy.Config.ProbeTurnWanted: whose turn it is to probe an upstream
// is worth asking. It does not block.
func (f *Fleet) ProbeTurnWanted() { notify(f.breakerOpened) }

// foundUpBuffer is for how many upstreams found up there is room before they are told.
const foundUpBuffer = 64

// UpstreamFoundUp is for proxy.Config.UpstreamFoundUp: it tells the others that an
// upstream is up. It does not block.
func (f *Fleet) UpstreamFoundUp(key uint64) {
	select {
	case f.foundUp <- key:
	default:
		f.closedDropped.Add(1)
	}
}

func (f *Fleet) probeTurnKey(key uint64) string {
	return f.prefix + "probe:" + strconv.FormatUint(key, 16)
}
func (f *Fleet) foundUpChannel() string { return f.prefix + "up" }

// turnInterval is the least time between two rounds of questions.
const turnInterval = 5 * time.Millisecond

// requestProbeTurns asks whose turn it is to probe the upstreams whose breakers are not
// open, until ctx ends. How often is policy.Guard's to say, and not how many
// requests there are.
func (f *Fleet) requestProbeTurns(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		asks, next := local.ProbeTurnRequests(nil)
		f.sendProbeTurnRequests(ctx, asks, local)
		sleep(ctx, turnInterval)
		due := time.NewTimer(min(next, time.Hour))
		select {
		case <-ctx.Done():
		case <-f.breakerOpened:
		case <-due.C:
		}
		due.Stop()
	}
}

// sendProbeTurnRequests asks all questions at once. What is not answered holds nobody back, so
// there is nobody to tell.
func (f *Fleet) sendProbeTurnRequests(ctx context.Context, asks []policy.ProbeTurnRequest, local Local) {
	if !f.link.up() {
		return
	}
	var all sync.WaitGroup
	for _, a := range asks {
		all.Go(func() {
			t, err := f.requestProbeTurn(ctx, a)
			if err != nil {
				return
			}
			switch t.Owner {
			case policy.TurnOurs:
				f.turnsOurs.Add(1)
			case policy.TurnOfAnother:
				f.turnsAnothers.Add(1)
			}
			local.ApplyProbeTurn(a.Key, t)
		})
	}
	all.Wait()
}

func (f *Fleet) requestProbeTurn(ctx context.Context, a policy.ProbeTurnRequest) (policy.ProbeTurnGrant, error) {
	reply, err := f.link.run(ctx, probeTurnScript, []string{f.probeTurnKey(a.Key)}, f.member, policy.ProbeTurnDuration.Microseconds(), oneIf(a.WantsTurn), oneIf(a.ProbePending))
	if err != nil {
		return policy.ProbeTurnGrant{}, err
	}
	list, _ := reply.([]any)
	if len(list) != 2 {
		return policy.ProbeTurnGrant{}, errReply
	}
	whose, ok := list[0].(int64)
	left, ok2 := list[1].(int64)
	if !ok || !ok2 || whose < 0 || whose > int64(policy.TurnUpstreamUp) || left < 0 || left > policy.ProbeTurnDuration.Microseconds() {
		return policy.ProbeTurnGrant{}, errReply
	}
	return policy.ProbeTurnGrant{Owner: policy.TurnOwner(whose), Remaining: time.Duration(left) * time.Microsecond}, nil
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// publishFoundUp tells the others of upstreams that are up, until ctx ends. What could
// not be told is not kept: each finds it out by itself.
func (f *Fleet) publishFoundUp(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-f.foundUp:
			_, err := f.link.number(ctx, foundUpScript, []string{f.probeTurnKey(key)}, f.foundUpChannel(), f.member, strconv.FormatUint(key, 16), policy.UpstreamUpFor.Milliseconds())
			if err != nil {
				f.closedDropped.Add(1)
				continue
			}
			f.closedSent.Add(1)
		}
	}
}

// receiveFoundUp reads a message: who tells, and of what key.
func (f *Fleet) receiveFoundUp(message string, local Local) {
	who, what, _ := strings.Cut(message, " ")
	if who == f.member {
		return
	}
	key, err := strconv.ParseUint(what, 16, 64)
	if err != nil {
		f.malformed.Add(1)
		return
	}
	f.closedReceived.Add(1)
	local.PeerFoundUp(key)
}
