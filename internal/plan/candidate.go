package plan

import (
	"errors"
	"fmt"
	"maps"
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
		Label: "route " + r.Name, Route: r.Name, Strategy: r.Backoff, Backoff: p.Backoff, Retries: p.MaxRetries,
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

// spec is one strategy as written.
type spec struct {
	name    string
	options map[string]string
	label   string
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
		b, err := s.make()
		errs = append(errs, err)
		if seen[s.label] {
			errs = append(errs, fmt.Errorf("%s is given twice", s.label))
		}
		seen[s.label] = true
		candidates[i] = Candidate{Label: s.label, Strategy: s.name, Backoff: b, Retries: w.Retries, RequestTimeout: w.RequestTimeout}
	}
	return candidates, errors.Join(errs...)
}

// specs returns the strategies asked for, in order.
func (w *Wish) specs() ([]spec, error) {
	var specs []spec
	var errs []error
	for _, list := range w.Backoffs {
		for text := range strings.SplitSeq(list, ",") {
			s, err := parseSpec(strings.TrimSpace(text))
			errs = append(errs, err)
			specs = append(specs, s)
		}
	}
	var ratios []spec
	for _, list := range w.Ratios {
		for value := range strings.SplitSeq(list, ",") {
			value = strings.TrimSpace(value)
			ratios = append(ratios, spec{"ratio", map[string]string{"ratio": value}, "ratio " + value})
		}
	}
	if len(ratios) > 0 {
		specs = slices.DeleteFunc(specs, func(s spec) bool { return s.name == "ratio" && s.options["ratio"] == "" })
		specs = append(specs, ratios...)
	}
	if len(specs) == 0 {
		specs = []spec{{name: backoff.Default, label: backoff.Default}}
	}
	return specs, errors.Join(errs...)
}

// parseSpec parses NAME:option=value:option=value.
func parseSpec(text string) (spec, error) {
	parts := strings.Split(text, ":")
	s := spec{name: parts[0], options: map[string]string{}}
	for _, part := range parts[1:] {
		key, value, found := strings.Cut(part, "=")
		if !found {
			return s, fmt.Errorf("%s: expected NAME:option=value", text)
		}
		if _, twice := s.options[key]; twice {
			return s, fmt.Errorf("%s: %s is given twice", text, key)
		}
		s.options[key] = value
	}
	s.label = strings.Join(append([]string{s.name}, parts[1:]...), " ")
	return s, nil
}

// make builds the strategy. An option that it does not use is an error.
func (s *spec) make() (backoff.Strategy, error) {
	if _, known := backoff.Describe(s.name); !known {
		_, err := backoff.New(s.name, backoff.Options{})
		return nil, err
	}
	var o backoff.Options
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.options)) {
		if slices.Contains(strategy.Keys(), key) && !strategy.Uses(s.name, key) {
			errs = append(errs, fmt.Errorf("%s does not use %s", s.name, key))
			continue
		}
		errs = append(errs, strategy.Set(&o, key, s.options[key]))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", s.label, err)
	}
	return backoff.New(s.name, o)
}
