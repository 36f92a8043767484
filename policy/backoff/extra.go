package backoff

import (
	"fmt"
	"time"
)

// extra adds a random wait to that of another strategy.
//
//	wait = inner + U,  U uniform in [0, upTo]
//
// The addition comes after the cap of the inner strategy. It is for strategies that are the same for
// every client.
type extra struct {
	Strategy
	upTo time.Duration // > 0
}

// Wait returns the inner wait plus the addition.
func (x extra) Wait(s Step, r Rand) time.Duration {
	return AddUp(x.Strategy.Wait(s, r), UpTo(r, x.upTo))
}

// Range returns the inner range plus that of the addition.
func (x extra) Range(s Step) Range {
	in := x.Strategy.(Ranger).Range(s)
	return Range{Min: in.Min, Mean: AddUp(in.Mean, x.upTo/2), Max: AddUp(in.Max, x.upTo)}
}

func (x extra) endless() bool { return !Bounded(x.Strategy) }

func (x extra) String() string { return fmt.Sprintf("%v plus up to %v", x.Strategy, x.upTo) }
