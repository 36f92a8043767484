// Package strategy provides the options of the backoff strategies by name: which strategy uses
// which option, and how a value is written.
//
// The settings and the command plan write a strategy in the same form. Both use this package, so that
// they agree.
package strategy

import (
	"cmp"
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
	key   string
	set   func(*backoff.Options, string) error
	given func(backoff.Options) bool
}

// options are in the order in which they are written.
var options = []option{
	of("base", duration, func(o *backoff.Options) *time.Duration { return &o.Base }),
	of("factor", number, func(o *backoff.Options) *float64 { return &o.Factor }),
	of("max", duration, func(o *backoff.Options) *time.Duration { return &o.Max }),
	of("jitter", number, func(o *backoff.Options) *float64 { return &o.Jitter }),
	of("spread", duration, func(o *backoff.Options) *time.Duration { return &o.Spread }),
	of("ratio", number, func(o *backoff.Options) *float64 { return &o.Ratio }),
	of("slots", count, func(o *backoff.Options) *int { return &o.Slots }),
	of("stay", yesOrNo, func(o *backoff.Options) *bool { return &o.Stay }),
	of("extra", duration, func(o *backoff.Options) *time.Duration { return &o.Extra }),
}

func of[T comparable](key string, parse func(string) (T, error), field func(*backoff.Options) *T) option {
	return option{
		key: key,
		set: func(o *backoff.Options, text string) error {
			v, err := parse(text)
			if err == nil {
				*field(o) = v
			}
			return err
		},
		given: func(o backoff.Options) bool { return *field(&o) != *new(T) },
	}
}

// Keys lists the options in the order in which they are written. The slice belongs to the caller.
func Keys() []string {
	keys := make([]string, len(options))
	for i, o := range options {
		keys[i] = o.key
	}
	return keys
}

// Uses reports whether the strategy with that name uses the option. Every strategy uses extra; an
// unknown one uses nothing.
func Uses(name, key string) bool {
	info, known := backoff.Describe(name)
	o := find(key)
	switch {
	case !known || o == nil:
		return false
	case key == "extra":
		return true
	case key == "stay":
		return info.Defaults.Slots != 0
	}
	return o.given(info.Defaults)
}

// KeysOf lists the options that the strategy uses, in the order in which they are written.
func KeysOf(name string) []string {
	return slices.DeleteFunc(Keys(), func(key string) bool { return !Uses(name, key) })
}

// Set sets an option from the user's text. Zero is rejected, because it would mean the strategy's
// own default, and so is anything that is not a value. backoff.New checks the range.
func Set(o *backoff.Options, key, value string) error {
	option := find(key)
	if option == nil {
		return fmt.Errorf("unknown option %q; the options are %s", key, strings.Join(Keys(), ", "))
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

var (
	duration = above0("a duration above 0 with its unit, such as 250ms, 10s or 2m", time.ParseDuration)
	number   = above0("a number above 0", func(text string) (float64, error) { return strconv.ParseFloat(text, 64) })
	count    = above0("a whole number above 0", strconv.Atoi)
)

// above0 returns a parser that rejects what is not above 0, with an error that describes what is
// expected.
func above0[T cmp.Ordered](expected string, parse func(string) (T, error)) func(string) (T, error) {
	return func(text string) (T, error) {
		var zero T
		if v, err := parse(text); err == nil && v > zero {
			return v, nil
		}
		return zero, errors.New("expected " + expected)
	}
}

func yesOrNo(text string) (bool, error) {
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, errors.New("expected true or false")
	}
	return v, nil
}
