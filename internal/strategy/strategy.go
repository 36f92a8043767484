// Package strategy provides the options of the backoff strategies by name: which strategy uses
// which option, and how a value is written.
//
// Both the settings and the plan command accept options for strategies that may not use them. Both
// use this package, so that they agree.
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

// option is one field of backoff.Options.
type option struct {
	key, about string
	set        func(*backoff.Options, string) error
	given      func(backoff.Options) bool
	used       func(backoff.Info) bool // nil: used if the strategy's defaults set it
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
	{key: "ratio", about: "of ratio: ratio of the wait to the time elapsed",
		set:   number(func(o *backoff.Options) *float64 { return &o.Ratio }),
		given: func(o backoff.Options) bool { return o.Ratio != 0 }},
	{key: "slots", about: "of slots: ceiling of the slot number", set: setSlots,
		given: func(o backoff.Options) bool { return o.Slots != 0 }},
	{key: "stay", about: "of slots: stay at the ceiling instead of restarting", set: setStay,
		given: func(o backoff.Options) bool { return o.Stay },
		used:  func(i backoff.Info) bool { return i.Defaults.Slots != 0 }},
	{key: "extra", about: "additional random wait up to this time, not limited by the cap",
		set:   duration(func(o *backoff.Options) *time.Duration { return &o.Extra }),
		given: func(o backoff.Options) bool { return o.Extra != 0 },
		used:  func(backoff.Info) bool { return true }},
}

// Keys lists the options in the order in which they are written. The slice belongs to the caller.
func Keys() []string {
	keys := make([]string, len(options))
	for i, o := range options {
		keys[i] = o.key
	}
	return keys
}

// About returns a short description of an option, "" if it does not exist.
func About(key string) string {
	if o := find(key); o != nil {
		return o.about
	}
	return ""
}

// Uses reports whether the strategy with that name uses the option. Every strategy uses extra; an
// unknown one uses nothing.
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

// Ignored lists the options set in o that the strategy does not use.
func Ignored(name string, o backoff.Options) []string {
	var keys []string
	for _, x := range options {
		if x.given(o) && !Uses(name, x.key) {
			keys = append(keys, x.key)
		}
	}
	return keys
}

// Users lists the strategies that use the option.
func Users(key string) []string {
	return slices.DeleteFunc(backoff.Strategies(), func(name string) bool { return !Uses(name, key) })
}

// Set sets an option from the user's text. Zero is rejected, because it would mean the strategy's
// own default, and so is anything that is not a value. backoff.New checks the range.
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
