package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// Candidate is one backoff to plan, with its limits.
type Candidate struct {
	Label    string // in tables and legends; unique
	Route    string // the route with these settings; "" for a strategy that the user named
	Strategy string // a name for backoff.New
	Backoff  backoff.Strategy
	Retries  int // maximum number of retries, 0 to MaxRetries

	// Limits of time, 0 for none. AttemptTimeout only applies to routes; otherwise Options.Attempt
	// is how long attempts last.
	RequestTimeout, AttemptTimeout time.Duration

	// Budget is the retry budget shared by all requests; nil for none. A strategy that the user
	// named is described with and without the default budget.
	Budget *budget.Config
}

// Limits of a plan.
const (
	MaxRetries    = 10_000
	maxCandidates = 12
)

// ratio returns the strategy for its closed forms, if it is ratio.
func (c *Candidate) ratio() (backoff.Ratio, bool) {
	r, ok := c.Backoff.(backoff.Ratio)
	return r, ok
}

// describe returns the strategy with all its options.
func (c *Candidate) describe() string { return fmt.Sprint(c.Backoff) }

// FromRoute returns the candidate for the settings of a route.
func FromRoute(r *config.Route) (Candidate, error) {
	p, err := r.Policy()
	if err != nil {
		return Candidate{}, err
	}
	c := Candidate{
		Label: "route " + r.Name, Route: r.Name, Strategy: r.Backoff.Name(), Backoff: p.Backoff, Retries: p.MaxRetries,
		RequestTimeout: r.RequestTimeout, AttemptTimeout: r.AttemptTimeout.Value(),
	}
	if b, has := r.Budget(); has {
		c.Budget = &b
	}
	return c, nil
}

// Wish is what the user asks for by flags.
type Wish struct {
	// Backoffs are lists, separated by commas, of NAME or NAME:option=value:option=value. Without
	// any Backoffs and Ratios, the default strategy is planned.
	Backoffs []string
	// Ratios make one strategy ratio each. They replace entries ratio in Backoffs without a ratio
	// of their own; otherwise they are added at the end.
	Ratios         []string
	Retries        int
	RequestTimeout time.Duration
}

// Parse returns the candidates that w asks for. The error names everything that is wrong.
func Parse(w Wish) ([]Candidate, error) {
	specs, err := w.specs()
	if err != nil {
		return nil, err
	}
	if len(specs) > maxCandidates {
		return nil, fmt.Errorf("%d strategies, expected at most %d", len(specs), maxCandidates)
	}
	var errs []error
	candidates := make([]Candidate, len(specs))
	seen := map[string]bool{}
	for i, s := range specs {
		b, err := s.New()
		errs = append(errs, err)
		if seen[s.Label] {
			errs = append(errs, fmt.Errorf("%s is given twice", s.Label))
		}
		seen[s.Label] = true
		candidates[i] = Candidate{Label: s.Label, Strategy: s.Name, Backoff: b, Retries: w.Retries, RequestTimeout: w.RequestTimeout}
	}
	return candidates, errors.Join(errs...)
}

// specs returns the strategies asked for, in order.
func (w *Wish) specs() ([]strategy.Spec, error) {
	var specs []strategy.Spec
	var errs []error
	for _, list := range w.Backoffs {
		for text := range strings.SplitSeq(list, ",") {
			s, err := strategy.ParseSpec(strings.TrimSpace(text))
			if _, known := backoff.Describe(s.Name); !known && err == nil {
				if meant := config.Suggest("BACKOFF", s.Name); meant != "" {
					err = fmt.Errorf("%q: did you mean %s?", s.Name, meant)
				}
			}
			errs = append(errs, err)
			specs = append(specs, s)
		}
	}
	var ratios []strategy.Spec
	for _, list := range w.Ratios {
		for value := range strings.SplitSeq(list, ",") {
			value = strings.TrimSpace(value)
			ratios = append(ratios, strategy.Spec{Name: "ratio", Options: map[string]string{"ratio": value}, Label: "ratio " + value})
		}
	}
	if len(ratios) > 0 {
		specs = slices.DeleteFunc(specs, func(s strategy.Spec) bool { return s.Name == "ratio" && s.Options["ratio"] == "" })
		specs = append(specs, ratios...)
	}
	if len(specs) == 0 {
		specs = []strategy.Spec{{Name: backoff.Default, Label: backoff.Default}}
	}
	return specs, errors.Join(errs...)
}
