package policy

import (
	"fmt"
	"time"
)

// Fixed waits the same time before every retry, in nanoseconds.
//
//	wait = Base
//
// It has no randomness: clients who fail together come back together. Give it
// Options.Extra unless there is only one client.
//
// Source: the oldest rule there is.
type Fixed struct {
	Base time.Duration
}

func init() {
	register(strategy{
		Info: Info{
			Name:     "fixed",
			Summary:  "The same wait each time; for a single client, or with extra jitter.",
			Formula:  "base",
			Source:   "common practice",
			Defaults: Options{Base: 100 * time.Millisecond},
		},
		make: func(o Options) Backoff { return Fixed{o.Base} },
	})
}

// Wait draws nothing.
func (b Fixed) Wait(Step, Rand) time.Duration { return b.Base }

// Range is one value.
func (b Fixed) Range(Step) Range { return Range{b.Base, b.Base, b.Base} }

func (b Fixed) String() string { return fmt.Sprintf("fixed base=%v", b.Base) }
