package strategy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Spec is a strategy as a user writes it: NAME:option=value:option=value.
type Spec struct {
	Name    string
	Options map[string]string
	Label   string // the text with spaces in place of the colons
}

// ParseSpec parses NAME:option=value:option=value. It checks neither the name nor the options.
func ParseSpec(text string) (Spec, error) {
	parts := strings.Split(text, ":")
	s := Spec{Name: parts[0], Options: map[string]string{}}
	for _, part := range parts[1:] {
		key, value, found := strings.Cut(part, "=")
		if !found {
			return s, fmt.Errorf("%s: expected NAME:option=value", text)
		}
		if _, twice := s.Options[key]; twice {
			return s, fmt.Errorf("%s: %s is given twice", text, key)
		}
		s.Options[key] = value
	}
	s.Label = strings.Join(parts, " ")
	return s, nil
}

// Values returns the options. The error names each one that the strategy does not have, or whose value
// is not what is expected. It does not check ranges, which backoff.New does.
func (s *Spec) Values() (backoff.Options, error) {
	var o backoff.Options
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.Options)) {
		if !Uses(s.Name, key) {
			errs = append(errs, fmt.Errorf("%s=%s: the strategy %s has no such option; its options are %s", key, s.Options[key], s.Name, strings.Join(KeysOf(s.Name), ", ")))
			continue
		}
		if err := Set(&o, key, s.Options[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Name, err))
		}
	}
	return o, errors.Join(errs...)
}

// New builds the strategy. An option that it does not use is an error.
func (s *Spec) New() (backoff.Strategy, error) {
	if _, known := backoff.Describe(s.Name); !known {
		_, err := backoff.New(s.Name, backoff.Options{})
		return nil, err
	}
	o, err := s.Values()
	if err != nil {
		return nil, err
	}
	return backoff.New(s.Name, o)
}
