package fleet

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// GateWanted is for proxy.Config.GateWanted: whose turn it is to probe an upstream
// is worth asking. It does not block.
func (f *Fleet) GateWanted() { poke(f.shut) }

// openedRoom is for how many upstreams found up there is room before they are told.
const openedRoom = 64

// GateOpened is for proxy.Config.GateOpened: it tells the others that an
// upstream is up. It does not block.
func (f *Fleet) GateOpened(key uint64) {
	select {
	case f.opened <- key:
	default:
		f.openedDropped.Add(1)
	}
}

func (f *Fleet) gateKey(key uint64) string {
	return f.prefix + "gate:" + strconv.FormatUint(key, 16)
}
func (f *Fleet) openedChannel() string { return f.prefix + "opened" }

// turnEvery is the least time between two rounds of questions.
const turnEvery = 5 * time.Millisecond

// takeTurns asks whose turn it is to probe the upstreams whose gates are not
// open, until ctx ends. How often is policy.Guard's to say, and not how many
// requests there are.
func (f *Fleet) takeTurns(ctx context.Context, local Local) {
	for ctx.Err() == nil {
		asks, next := local.GateAsks(nil)
		f.askTurns(ctx, asks, local)
		sleep(ctx, turnEvery)
		due := time.NewTimer(min(next, time.Hour))
		select {
		case <-ctx.Done():
		case <-f.shut:
		case <-due.C:
		}
		due.Stop()
	}
}

// askTurns asks all questions at once. What is not answered holds nobody back, so
// there is nobody to tell.
func (f *Fleet) askTurns(ctx context.Context, asks []policy.GateAsk, local Local) {
	if !f.link.up() {
		return
	}
	var all sync.WaitGroup
	for _, a := range asks {
		all.Go(func() {
			t, err := f.askTurn(ctx, a)
			if err != nil {
				return
			}
			switch t.Whose {
			case policy.TurnOurs:
				f.turnsOurs.Add(1)
			case policy.TurnOfAnother:
				f.turnsAnothers.Add(1)
			}
			local.GrantGate(a.Key, t)
		})
	}
	all.Wait()
}

func (f *Fleet) askTurn(ctx context.Context, a policy.GateAsk) (policy.GateTurn, error) {
	reply, err := f.link.run(ctx, turned, []string{f.gateKey(a.Key)}, f.member, policy.GateTurnLasts.Microseconds(), oneIf(a.Takes), oneIf(a.Hangs))
	if err != nil {
		return policy.GateTurn{}, err
	}
	list, _ := reply.([]any)
	if len(list) != 2 {
		return policy.GateTurn{}, errReply
	}
	whose, ok := list[0].(int64)
	left, ok2 := list[1].(int64)
	if !ok || !ok2 || whose < 0 || whose > int64(policy.TurnOver) || left < 0 || left > policy.GateTurnLasts.Microseconds() {
		return policy.GateTurn{}, errReply
	}
	return policy.GateTurn{Whose: policy.Turn(whose), Left: time.Duration(left) * time.Microsecond}, nil
}

func oneIf(is bool) int {
	if is {
		return 1
	}
	return 0
}

// tellOpened tells the others of upstreams that are up, until ctx ends. What could
// not be told is not kept: each finds it out by itself.
func (f *Fleet) tellOpened(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-f.opened:
			_, err := f.link.number(ctx, opened, []string{f.gateKey(key)}, f.openedChannel(), f.member, strconv.FormatUint(key, 16), policy.GateUpFor.Milliseconds())
			if err != nil {
				f.openedDropped.Add(1)
				continue
			}
			f.openedTold.Add(1)
		}
	}
}

// hearOpened reads a message: who tells, and of what key.
func (f *Fleet) hearOpened(message string, local Local) {
	who, what, _ := strings.Cut(message, " ")
	if who == f.member {
		return
	}
	key, err := strconv.ParseUint(what, 16, 64)
	if err != nil {
		f.malformed.Add(1)
		return
	}
	f.openedLearnt.Add(1)
	local.HearGate(key)
}
