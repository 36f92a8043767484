package policy

import (
	"fmt"
	"time"
)

// extra adds a random wait to that of another strategy.
//
//	wait = inner + U,  U uniform in [0, upTo]
//
// The addition comes after the cap of the inner strategy: it exists for those
// that are the same for every client once they are at the cap.
type extra struct {
	Backoff
	upTo time.Duration // > 0
}

// Wait is the inner wait and the addition, in nanoseconds.
func (x extra) Wait(s Step, r Rand) time.Duration {
	return addUp(x.Backoff.Wait(s, r), upTo(r, x.upTo))
}

// Range moves the inner one by the addition's.
func (x extra) Range(s Step) Range {
	in := x.Backoff.(Ranger).Range(s)
	return Range{Min: in.Min, Mean: addUp(in.Mean, x.upTo/2), Max: addUp(in.Max, x.upTo)}
}

func (x extra) endless() bool { return !Bounded(x.Backoff) }

func (x extra) String() string { return fmt.Sprintf("%v plus up to %v", x.Backoff, x.upTo) }
