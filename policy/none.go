package policy

import "time"

// None retries at once.
//
//	wait = 0
//
// For an upstream with several addresses, where a retry goes elsewhere; for
// one that is down it only burns the budget.
type None struct{}

func init() {
	register(strategy{
		Info: Info{
			Name:    "none",
			Summary: "No wait; for an upstream with several addresses.",
			Formula: "0",
			Source:  "common practice",
		},
		make: func(Options) Backoff { return None{} },
	})
}

// Wait draws nothing.
func (None) Wait(Step, Rand) time.Duration { return 0 }

// Range is 0.
func (None) Range(Step) Range { return Range{} }

func (None) String() string { return "none" }
