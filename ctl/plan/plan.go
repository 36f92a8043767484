package plan

import (
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// Options apply to all candidates of a plan.
type Options struct {
	Attempt time.Duration // the assumed duration of a failing attempt
	Elapsed time.Duration // when the upstream recovers, for Reach; 0 computes no Reach
	Seed    uint64        // the same seed yields the same plan
}

// Plan is what the candidates will do.
type Plan struct {
	Options Options
	Lines   []Line   // one per candidate, in the same order
	Changes []Change // between strategies ratio, from the first to every other
}

// Line is what one candidate will do.
type Line struct {
	Candidate
	Rows  []policy.Row
	Worst policy.Worst
	Reach *Reach // nil if not requested
}

// Make computes a plan.
func Make(candidates []Candidate, o Options) *Plan {
	p := &Plan{Options: o, Lines: make([]Line, len(candidates))}
	for i, c := range candidates {
		l := Line{Candidate: c}
		l.Rows = policy.Plan(c.Backoff, c.Retries, policy.PlanOptions{Attempt: o.Attempt, Seed: o.Seed})
		l.Worst = l.worst()
		if o.Elapsed > 0 {
			l.Reach = reach(c.Backoff, o)
		}
		p.Lines[i] = l
	}
	p.Changes = changes(candidates, o.Elapsed)
	return p
}

// worst returns the worst case of package policy. If attempts have no timeout, the slow case is the
// last column of the rows, with attempts of Options.Attempt.
func (l *Line) worst() policy.Worst {
	p := policy.Policy{MaxRetries: l.Retries, Backoff: l.Backoff}
	w := p.Worst(l.RequestTimeout, l.AttemptTimeout)
	if l.Route != "" {
		return w
	}
	w.SlowAttempts, w.LastBegins = 1, 0
	for _, row := range l.Rows {
		if !l.fits(row.Total.Max) {
			break
		}
		w.SlowAttempts, w.LastBegins = w.SlowAttempts+1, row.Total.Max
	}
	return w
}

// making is whether a retry of a plan will be made.
type making string

const (
	always    making = "always"       // it fits, and there is no retry budget
	withToken making = "with a token" // it fits; the retry budget decides
	maybe     making = "if it fits"
	never     making = "never"
)

// bounded reports whether a time limit may prevent a retry.
func (l *Line) bounded() bool { return l.RequestTimeout > 0 }

// fits reports whether a retry that begins at the given time begins before the request's end.
func (l *Line) fits(at time.Duration) bool { return l.RequestTimeout <= 0 || at < l.RequestTimeout }

// made returns whether the retry is made, by the rules of policy.Policy.Decide.
func (l *Line) made(r policy.Row) making {
	switch {
	case !l.fits(r.Total.Min):
		return never
	case !l.fits(r.Total.Max):
		return maybe
	case l.budget() != nil:
		return withToken
	}
	return always
}

// Change is how another ratio changes the number of tries.
type Change struct {
	From, To string // labels
	// LongRun is log r / log r_new, the limit of the factor over time. Within is the factor until
	// Options.Elapsed, 0 if that is not set. Both ignore the cap.
	LongRun, Within float64
}

func changes(candidates []Candidate, elapsed time.Duration) []Change {
	var list []Change
	var first *Candidate
	for i := range candidates {
		c := &candidates[i]
		to, is := c.ratio()
		if !is {
			continue
		}
		if first == nil {
			first = c
			continue
		}
		from, _ := first.ratio()
		change := Change{From: first.Label, To: c.Label, LongRun: from.Multiplies(to)}
		if elapsed > 0 {
			change.Within = to.Tries(elapsed) / from.Tries(elapsed)
		}
		list = append(list, change)
	}
	return list
}
