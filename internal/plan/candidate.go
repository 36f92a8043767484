package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/budget"
)

// Candidate is one backoff to plan, with the bounds that it stands under.
type Candidate struct {
	Label    string // in tables and legends; differs from that of every other
	Route    string // whose settings it is; "" for one that the user named
	Strategy string // as policy.New knows it
	Backoff  backoff.Strategy
	Retries  int // most retries, 0 to MaxRetries

	// Bounds on time, 0 for none. AttemptTimeout is looked at for routes only;
	// elsewhere Options.Attempt says how long attempts last.
	RequestTimeout, AttemptTimeout time.Duration

	// Budget of the retries of all requests together; nil for none. A user's
	// own candidate is told about with and without the default one.
	Budget *budget.Config
}

// Limits of what is planned.
const (
	MaxRetries    = 10_000
	MaxCandidates = 12
)

// ratio gives the closed forms, when the strategy is ratio.
func (c *Candidate) ratio() (backoff.Ratio, bool) {
	r, ok := c.Backoff.(backoff.Ratio)
	return r, ok
}

// describe is the strategy with all its options.
func (c *Candidate) describe() string { return fmt.Sprint(c.Backoff) }

// Wish is what a user asks for by flags.
type Wish struct {
	// Backoffs are lists, separated by commas, of NAME or
	// NAME:option=value:option=value. Empty, and no Ratios either: the default
	// strategy.
	Backoffs []string
	// Ratios stand each for one strategy ratio of that ratio, in place of those
	// in Backoffs that say none, else after them.
	Ratios []string
	// Options apply to every strategy that uses them and does not say its own.
	Options map[string]string

	Retries        int
	RequestTimeout time.Duration
}

// spec is one strategy as written.
type spec struct {
	name    string
	options map[string]string // what it says itself
	label   string
}

// Parse makes the candidates that w asks for. The error names everything that
// is wrong with it.
func Parse(w Wish) ([]Candidate, error) {
	specs, err := w.specs()
	if err != nil {
		return nil, err
	}
	if len(specs) > MaxCandidates {
		return nil, fmt.Errorf("%d strategies, expected at most %d", len(specs), MaxCandidates)
	}
	errs := []error{w.unused(specs)}
	candidates := make([]Candidate, len(specs))
	seen := map[string]bool{}
	for i, s := range specs {
		b, err := w.make(s)
		if err != nil {
			errs = append(errs, err)
		}
		if seen[s.label] {
			errs = append(errs, fmt.Errorf("%s is given twice", s.label))
		}
		seen[s.label] = true
		candidates[i] = Candidate{Label: s.label, Strategy: s.name, Backoff: b, Retries: w.Retries, RequestTimeout: w.RequestTimeout}
	}
	return candidates, errors.Join(errs...)
}

// specs are the strategies asked for, in order.
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

// parseSpec reads NAME:option=value:option=value.
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

// make builds the strategy. An option of its own that it does not use is an
// error: whoever wrote it meant something.
func (w *Wish) make(s spec) (backoff.Strategy, error) {
	if _, known := backoff.Describe(s.name); !known {
		_, err := backoff.New(s.name, backoff.Options{})
		return nil, err
	}
	var o backoff.Options
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.options)) {
		if strategy.About(key) != "" && !strategy.Uses(s.name, key) {
			errs = append(errs, fmt.Errorf("%s does not use %s", s.name, key))
			continue
		}
		errs = append(errs, strategy.Set(&o, key, s.options[key]))
	}
	for _, key := range strategy.Keys() {
		value, common := w.Options[key]
		if _, own := s.options[key]; common && !own && strategy.Uses(s.name, key) {
			errs = append(errs, strategy.Set(&o, key, value))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", s.label, err)
	}
	return backoff.New(s.name, o)
}

// unused tells of a common option that no strategy looks at.
func (w *Wish) unused(specs []spec) error {
	var errs []error
	for _, key := range strategy.Keys() {
		if _, given := w.Options[key]; !given {
			continue
		}
		if !slices.ContainsFunc(specs, func(s spec) bool { return strategy.Uses(s.name, key) }) {
			errs = append(errs, fmt.Errorf("no strategy here uses %s; %s does", key, strings.Join(strategy.Users(key), ", ")))
		}
	}
	return errors.Join(errs...)
}
