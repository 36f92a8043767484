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

// New builds the strategy. An option that it does not use is an error.
func (s *Spec) New() (backoff.Strategy, error) {
	if _, known := backoff.Describe(s.Name); !known {
		_, err := backoff.New(s.Name, backoff.Options{})
		return nil, err
	}
	var o backoff.Options
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.Options)) {
		if slices.Contains(Keys(), key) && !Uses(s.Name, key) {
			errs = append(errs, fmt.Errorf("%s does not use %s", s.Name, key))
			continue
		}
		errs = append(errs, Set(&o, key, s.Options[key]))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%s: %w", s.Label, err)
	}
	return backoff.New(s.Name, o)
}
