package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// DefaultStrategy is the backoff where none is named.
const DefaultStrategy = "full-jitter"

// Options set up a strategy. The zero value of a field means the strategy's
// own default; a field that a strategy does not use is ignored (Info.Defaults
// tells which it uses: those are not zero there).
type Options struct {
	Base   time.Duration // first wait, or its bound; slots: the slot time. > 0
	Max    time.Duration // cap of a wait; >= Base, <= 8760h
	Factor float64       // growth per retry; >= 1, <= 1000
	Jitter float64       // normal: standard deviation as a fraction of the wait; > 0, <= 1
	Spread time.Duration // additive: longest random addition; >= 0
	Ratio  float64       // ratio: wanted ratio of wait to time elapsed; > 0, <= 1000
	Slots  int           // slots: ceiling; 1 to 32
	Stay   bool          // slots: stay at the ceiling instead of starting again

	// Extra is a further wait, uniform in [0, Extra], added to that of any
	// strategy and not subject to its cap: for those that lose their jitter
	// there. >= 0; 0 = none.
	Extra time.Duration
}

// Info describes a strategy for the settings reference.
type Info struct {
	Name     string
	Summary  string  // one sentence: what it is and for whom
	Formula  string  // n = 0 for the first retry
	Source   string  // where the rule comes from
	Defaults Options // what New puts in place of zero fields; zero: not used
}

// strategy is an entry of the registry.
type strategy struct {
	Info
	make func(Options) Backoff // gets complete, checked options
}

// registry is written by the init functions of the strategies' files and only
// read after that.
var registry = map[string]strategy{}

// register adds a strategy; its file calls it from init.
func register(s strategy) {
	if _, taken := registry[s.Name]; taken {
		panic("policy: two strategies named " + s.Name)
	}
	registry[s.Name] = s
}

// Strategies lists the names that New knows, sorted. The slice belongs to the
// client.
func Strategies() []string { return slices.Sorted(maps.Keys(registry)) }

// Describe gives what is known about a strategy.
func Describe(name string) (Info, bool) {
	s, ok := registry[name]
	return s.Info, ok
}

// New makes the strategy of that name. Where only one of Base and Max is given
// and it passes the other's default, the other follows it. The error names
// every option that is out of range, or the names that exist.
func New(name string, o Options) (Backoff, error) {
	s, ok := registry[name]
	if !ok {
		return nil, fmt.Errorf("unknown backoff %q; there is %s", name, strings.Join(Strategies(), ", "))
	}
	if err := o.check(&s.Defaults); err != nil {
		return nil, fmt.Errorf("backoff %s: %w", name, err)
	}
	o = o.fill(s.Defaults)
	if o.Extra > 0 {
		return extra{Backoff: s.make(o), upTo: o.Extra}, nil
	}
	return s.make(o), nil
}

// NewThrottled makes the backoff for a 429 without Retry-After: the strategy
// of that name, beginning at base or later, but not above Max where that is
// given. A strategy without a first wait of its own (none, slots) gives way to
// full-jitter, because somebody who says "too many" must be given some time.
func NewThrottled(name string, o Options, base time.Duration) (Backoff, error) {
	s, ok := registry[name]
	if ok && (s.Defaults.Base == 0 || s.Defaults.Slots != 0) {
		name = DefaultStrategy
		o = Options{Max: o.Max, Extra: o.Extra}
	}
	o.Base = max(o.Base, s.Defaults.Base, base)
	if o.Max > 0 {
		o.Base = min(o.Base, o.Max)
	}
	return New(name, o)
}

// longest bounds every duration of Options: a year. It keeps sums far from
// overflow and is longer than any wait makes sense.
const longest = 8760 * time.Hour

// check says what is out of range among the options that are used.
func (o *Options) check(used *Options) error {
	return errors.Join(
		inRange("base", o.Base, 1, longest),
		inRange("max", o.Max, 1, longest),
		inRange("factor", o.Factor, 1, 1000),
		inRange("jitter", o.Jitter, 1e-9, 1),
		inRange("spread", o.Spread, 1, longest),
		inRange("ratio", o.Ratio, 1e-9, 1000),
		inRange("slots", o.Slots, 1, 32),
		inRange("extra", o.Extra, 1, longest),
		o.checkOrder(used),
	)
}

// inRange complains about a value that is given (not zero) and outside
// [low, high]. NaN is outside.
func inRange[T time.Duration | float64 | int](name string, v, low, high T) error {
	if v == 0 || v >= low && v <= high {
		return nil
	}
	return fmt.Errorf("%s %v is not within %v to %v", name, v, low, high)
}

// checkOrder complains about a base above the cap when both are given.
func (o *Options) checkOrder(used *Options) error {
	if used.Max == 0 || o.Base == 0 || o.Max == 0 || o.Base <= o.Max {
		return nil
	}
	return fmt.Errorf("base %v is above max %v", o.Base, o.Max)
}

// fill puts the defaults in place of zero fields.
func (o Options) fill(d Options) Options {
	base, top := o.Base, o.Max
	o.Base = orDefault(o.Base, d.Base)
	o.Max = orDefault(o.Max, d.Max)
	o.Factor = orDefault(o.Factor, d.Factor)
	o.Jitter = orDefault(o.Jitter, d.Jitter)
	o.Spread = orDefault(o.Spread, d.Spread)
	o.Ratio = orDefault(o.Ratio, d.Ratio)
	o.Slots = orDefault(o.Slots, d.Slots)
	if d.Max != 0 && o.Base > o.Max { // then at most one of them was given
		if base == 0 {
			o.Base = top
		} else {
			o.Max = base
		}
	}
	return o
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}
