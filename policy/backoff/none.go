package backoff

import "time"

// None retries at once.
//
//	wait = 0
//
// Use it for an upstream with several addresses, since a retry goes to another one. For an upstream
// that is down it only uses up the budget.
type None struct{}

func init() {
	register(kind{
		Info: Info{
			Name:    "none",
			Summary: "No wait. For an upstream with several endpoints.",
			Formula: "0",
			Source:  "common practice",
		},
		make: func(Options) Strategy { return None{} },
	})
}

// Wait returns 0. It draws nothing.
func (None) Wait(Step, Rand) time.Duration { return 0 }

// Range returns 0.
func (None) Range(Step) Range { return Range{} }

func (None) String() string { return "none" }
