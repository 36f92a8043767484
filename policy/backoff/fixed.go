package backoff

import (
	"fmt"
	"time"
)

// Fixed waits the same time before every retry, in nanoseconds.
//
//	wait = Base
//
// It has no randomness: clients that fail together return together. Use it with Options.Extra unless
// there is only one client. Base is also the least wait after a shorter Retry-After; see FloorOf.
type Fixed struct {
	Base time.Duration
}

func init() {
	register(kind{
		Info: Info{
			Name:     "fixed",
			Summary:  "The same wait each time, and no shorter one after a Retry-After. For a single client, or with the option extra.",
			Formula:  "base",
			Source:   "common practice",
			Defaults: Options{Base: 100 * time.Millisecond},
		},
		make: func(o Options) Strategy { return Fixed{o.Base} },
	})
}

// Wait returns Base. It draws nothing.
func (b Fixed) Wait(Step, Rand) time.Duration { return b.Base }

// Range returns a single value.
func (b Fixed) Range(Step) Range { return Range{b.Base, b.Base, b.Base} }

func (b Fixed) String() string { return fmt.Sprintf("fixed base=%v", b.Base) }
