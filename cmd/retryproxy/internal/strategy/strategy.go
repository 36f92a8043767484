// Package strategy knows the options of the backoff strategies by name: which
// strategy uses which, and how a value is written.
//
// Settings and the plan command both take options for strategies that may not
// use them; both ask here, so that they agree.
package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy"
)

// option is one field of policy.Options.
type option struct {
	key, about string
	set        func(*policy.Options, string) error
	used       func(policy.Info) bool
}

// options are in the order in which they are written.
var options = []option{
	{"base", "first wait before jitter; of slots the slot time", duration(func(o *policy.Options) *time.Duration { return &o.Base }), used(func(d policy.Options) bool { return d.Base != 0 })},
	{"factor", "by how much each wait is longer than the one before", number(func(o *policy.Options) *float64 { return &o.Factor }), used(func(d policy.Options) bool { return d.Factor != 0 })},
	{"max", "longest wait", duration(func(o *policy.Options) *time.Duration { return &o.Max }), used(func(d policy.Options) bool { return d.Max != 0 })},
	{"jitter", "of normal: standard deviation as a fraction of the wait", number(func(o *policy.Options) *float64 { return &o.Jitter }), used(func(d policy.Options) bool { return d.Jitter != 0 })},
	{"spread", "of additive: longest random addition", duration(func(o *policy.Options) *time.Duration { return &o.Spread }), used(func(d policy.Options) bool { return d.Spread != 0 })},
	{"ratio", "of ratio: wanted ratio of wait to time elapsed", number(func(o *policy.Options) *float64 { return &o.Ratio }), used(func(d policy.Options) bool { return d.Ratio != 0 })},
	{"slots", "of slots: ceiling of the slot number", setSlots, usesSlots},
	{"stay", "of slots: stay at the ceiling instead of beginning again", setStay, usesSlots},
	{"extra", "further wait of up to so much, whatever the cap", duration(func(o *policy.Options) *time.Duration { return &o.Extra }), func(policy.Info) bool { return true }},
}

// Keys lists the options in the order in which they are written. The slice is
// the caller's.
func Keys() []string {
	keys := make([]string, len(options))
	for i, o := range options {
		keys[i] = o.key
	}
	return keys
}

// About is a few words on an option, "" for one that does not exist.
func About(key string) string {
	if o := find(key); o != nil {
		return o.about
	}
	return ""
}

// Uses reports whether the strategy of that name looks at the option. Every
// strategy uses extra; an unknown one uses nothing.
func Uses(name, key string) bool {
	info, known := policy.Describe(name)
	o := find(key)
	return known && o != nil && o.used(info)
}

// Users lists the strategies that look at the option.
func Users(key string) []string {
	return slices.DeleteFunc(policy.Strategies(), func(name string) bool { return !Uses(name, key) })
}

// Set sets an option from what a user wrote. A zero would mean the strategy's
// own default to package policy and is refused, as is what is no value at all;
// whether the value is in range is for policy.New to say.
func Set(o *policy.Options, key, value string) error {
	option := find(key)
	if option == nil {
		return fmt.Errorf("unknown option %q; there is %s", key, strings.Join(Keys(), ", "))
	}
	if err := option.set(o, value); err != nil {
		return fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return nil
}

func find(key string) *option {
	for i := range options {
		if options[i].key == key {
			return &options[i]
		}
	}
	return nil
}

func used(by func(defaults policy.Options) bool) func(policy.Info) bool {
	return func(i policy.Info) bool { return by(i.Defaults) }
}

func usesSlots(i policy.Info) bool { return i.Defaults.Slots != 0 }

func duration(field func(*policy.Options) *time.Duration) func(*policy.Options, string) error {
	return func(o *policy.Options, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return errors.New("expected a duration above 0 with its unit, such as 250ms, 10s or 2m")
		}
		*field(o) = d
		return nil
	}
}

func number(field func(*policy.Options) *float64) func(*policy.Options, string) error {
	return func(o *policy.Options, value string) error {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v > 0) {
			return errors.New("expected a number above 0")
		}
		*field(o) = v
		return nil
	}
}

func setSlots(o *policy.Options, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return errors.New("expected a whole number above 0")
	}
	o.Slots = n
	return nil
}

func setStay(o *policy.Options, value string) error {
	v, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("expected true or false")
	}
	o.Stay = v
	return nil
}
