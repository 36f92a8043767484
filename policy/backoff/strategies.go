package backoff

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/internal/ranges"
)

// Default is the name of the default strategy.
const Default = "full-jitter"

// Options configures a strategy. A zero field means the strategy's own default. A strategy
// ignores fields that it does not use; those it uses are not zero in Info.Defaults.
type Options struct {
	Base   time.Duration // first wait, or its bound; slots: the slot time. > 0
	Max    time.Duration // cap of a wait; >= Base, <= 8760h
	Factor float64       // growth per retry; >= 1, <= 1000
	Jitter float64       // normal: standard deviation as a fraction of the wait; > 0, <= 1
	Spread time.Duration // additive: longest random addition; >= 0
	Ratio  float64       // ratio: wanted ratio of wait to time elapsed; > 0, <= 1000
	Slots  int           // slots: ceiling; 1 to 32
	Stay   bool          // slots: stay at the ceiling instead of restarting

	// Extra is a further wait, uniform in [0, Extra], added to that of any strategy and not
	// subject to its cap. It is for strategies without jitter. >= 0; 0 = none.
	Extra time.Duration
}

// Info describes a strategy for the settings reference.
type Info struct {
	Name     string
	Summary  string  // one sentence: what it is and for whom
	Formula  string  // n = 0 for the first retry
	Source   string  // where the rule comes from
	Defaults Options // what New uses for zero fields; zero: not used
}

// kind is an entry of the registry.
type kind struct {
	Info
	make func(Options) Strategy // takes complete, checked options
}

// registry is written by the init functions of the strategies' files and only read after
// that.
var registry = map[string]kind{}

// register adds a strategy; its file calls it from init.
func register(s kind) {
	if _, taken := registry[s.Name]; taken {
		panic("policy: two strategies named " + s.Name)
	}
	registry[s.Name] = s
}

// Strategies returns the names that New accepts, sorted. The slice belongs to the caller.
func Strategies() []string { return slices.Sorted(maps.Keys(registry)) }

// Describe returns the description of a strategy and whether it exists.
func Describe(name string) (Info, bool) {
	s, ok := registry[name]
	return s.Info, ok
}

// New returns the strategy of that name. If only one of Base and Max is set and it
// conflicts with the other's default, the other takes its value. The error names every
// option out of range, or the existing names.
func New(name string, o Options) (Strategy, error) {
	s, ok := registry[name]
	if !ok {
		return nil, fmt.Errorf("unknown backoff %q; the strategies are %s", name, strings.Join(Strategies(), ", "))
	}
	if err := o.check(&s.Defaults); err != nil {
		return nil, fmt.Errorf("backoff %s: %w", name, err)
	}
	o = o.fill(s.Defaults)
	if o.Extra > 0 {
		return extra{Strategy: s.make(o), upTo: o.Extra}, nil
	}
	return s.make(o), nil
}

// NewThrottled returns the backoff for a 429 without Retry-After: the strategy of that
// name, starting at base or later, but not above Max if that is set, nor above half of it if the
// strategy has no jitter at Max. A strategy without a
// first wait of its own (none, slots) is replaced with full-jitter, since an upstream that
// answers 429 needs some time.
func NewThrottled(name string, o Options, base time.Duration) (Strategy, error) {
	s, ok := registry[name]
	if ok && (s.Defaults.Base == 0 || s.Defaults.Slots != 0) {
		name = Default
		o = Options{Max: o.Max, Extra: o.Extra}
	}
	least := max(o.Base, 1)
	o.Base = max(o.Base, s.Defaults.Base, base)
	if o.Max > 0 && o.Base >= o.Max {
		o.Base = o.Max
		if half := o; half.Base/2 >= least {
			half.Base /= 2
			if b, err := New(name, half); err == nil && Spreads(b) && !spreads(name, o) {
				return b, nil
			}
		}
	}
	return New(name, o)
}

// spreads is Spreads for a strategy by name.
func spreads(name string, o Options) bool {
	b, err := New(name, o)
	return err == nil && Spreads(b)
}

// Longest limits every duration of Options: a year. It keeps sums far from overflow and
// exceeds every sensible wait.
const Longest = 8760 * time.Hour

// check returns an error that names the options out of range.
func (o *Options) check(used *Options) error {
	return errors.Join(
		ranges.Check("base", o.Base, 1, Longest),
		ranges.Check("max", o.Max, 1, Longest),
		ranges.Check("factor", o.Factor, 1, 1000),
		ranges.Check("jitter", o.Jitter, 1e-9, 1),
		ranges.Check("spread", o.Spread, 1, Longest),
		ranges.Check("ratio", o.Ratio, 1e-9, 1000),
		ranges.Check("slots", o.Slots, 1, 32),
		ranges.Check("extra", o.Extra, 1, Longest),
		o.checkOrder(used),
	)
}

// checkOrder returns an error if base and max are both set and base is above max.
func (o *Options) checkOrder(used *Options) error {
	if used.Max == 0 || o.Base == 0 || o.Max == 0 || o.Base <= o.Max {
		return nil
	}
	return fmt.Errorf("base %v is above max %v", o.Base, o.Max)
}

// fill replaces zero fields with the defaults.
func (o Options) fill(d Options) Options {
	base, top := o.Base, o.Max
	o.Base = orDefault(o.Base, d.Base)
	o.Max = orDefault(o.Max, d.Max)
	o.Factor = orDefault(o.Factor, d.Factor)
	o.Jitter = orDefault(o.Jitter, d.Jitter)
	o.Spread = orDefault(o.Spread, d.Spread)
	o.Ratio = orDefault(o.Ratio, d.Ratio)
	o.Slots = orDefault(o.Slots, d.Slots)
	if d.Max != 0 && o.Base > o.Max { // then at most one of them was set
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
