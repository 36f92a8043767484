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

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// option is one field of policy.Options.
type option struct {
	key, about string
	set        func(*backoff.Options, string) error
	given      func(backoff.Options) bool
	used       func(backoff.Info) bool // nil: where it is given in the strategy's defaults
}

// options are in the order in which they are written.
var options = []option{
	{key: "base", about: "first wait before jitter; of slots the slot time",
		set:   duration(func(o *backoff.Options) *time.Duration { return &o.Base }),
		given: func(o backoff.Options) bool { return o.Base != 0 }},
	{key: "factor", about: "by how much each wait is longer than the one before",
		set:   number(func(o *backoff.Options) *float64 { return &o.Factor }),
		given: func(o backoff.Options) bool { return o.Factor != 0 }},
	{key: "max", about: "longest wait",
		set:   duration(func(o *backoff.Options) *time.Duration { return &o.Max }),
		given: func(o backoff.Options) bool { return o.Max != 0 }},
	{key: "jitter", about: "of normal: standard deviation as a fraction of the wait",
		set:   number(func(o *backoff.Options) *float64 { return &o.Jitter }),
		given: func(o backoff.Options) bool { return o.Jitter != 0 }},
	{key: "spread", about: "of additive: longest random addition",
		set:   duration(func(o *backoff.Options) *time.Duration { return &o.Spread }),
		given: func(o backoff.Options) bool { return o.Spread != 0 }},
	{key: "ratio", about: "of ratio: wanted ratio of wait to time elapsed",
		set:   number(func(o *backoff.Options) *float64 { return &o.Ratio }),
		given: func(o backoff.Options) bool { return o.Ratio != 0 }},
	{key: "slots", about: "of slots: ceiling of the slot number", set: setSlots,
		given: func(o backoff.Options) bool { return o.Slots != 0 }},
	{key: "stay", about: "of slots: stay at the ceiling instead of beginning again", set: setStay,
		given: func(o backoff.Options) bool { return o.Stay },
		used:  func(i backoff.Info) bool { return i.Defaults.Slots != 0 }},
	{key: "extra", about: "further wait of up to so much, whatever the cap",
		set:   duration(func(o *backoff.Options) *time.Duration { return &o.Extra }),
		given: func(o backoff.Options) bool { return o.Extra != 0 },
		used:  func(backoff.Info) bool { return true }},
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
	info, known := backoff.Describe(name)
	o := find(key)
	switch {
	case !known || o == nil:
		return false
	case o.used != nil:
		return o.used(info)
	}
	return o.given(info.Defaults)
}

// Ignored lists those options given in o that the strategy does not look at.
func Ignored(name string, o backoff.Options) []string {
	var keys []string
	for _, x := range options {
		if x.given(o) && !Uses(name, x.key) {
			keys = append(keys, x.key)
		}
	}
	return keys
}

// Users lists the strategies that look at the option.
func Users(key string) []string {
	return slices.DeleteFunc(backoff.Strategies(), func(name string) bool { return !Uses(name, key) })
}

// Set sets an option from what a user wrote. A zero would mean the strategy's
// own default to package policy and is refused, as is what is no value at all;
// whether the value is in range is for policy.New to say.
func Set(o *backoff.Options, key, value string) error {
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

func duration(field func(*backoff.Options) *time.Duration) func(*backoff.Options, string) error {
	return func(o *backoff.Options, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return errors.New("expected a duration above 0 with its unit, such as 250ms, 10s or 2m")
		}
		*field(o) = d
		return nil
	}
}

func number(field func(*backoff.Options) *float64) func(*backoff.Options, string) error {
	return func(o *backoff.Options, value string) error {
		v, err := strconv.ParseFloat(value, 64)
		if err != nil || !(v > 0) {
			return errors.New("expected a number above 0")
		}
		*field(o) = v
		return nil
	}
}

func setSlots(o *backoff.Options, value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return errors.New("expected a whole number above 0")
	}
	o.Slots = n
	return nil
}

func setStay(o *backoff.Options, value string) error {
	v, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("expected true or false")
	}
	o.Stay = v
	return nil
}
