package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/retryproxy/retryproxy/internal/strategy"
	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/status"
)

// BreakerOn is the setting for a status.Failing.
type BreakerOn struct{ status.Failing }

// UnmarshalText parses text with status.ParseFailing.
func (b *BreakerOn) UnmarshalText(text []byte) error {
	set, err := status.ParseFailing(string(text))
	b.Failing = set
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (b BreakerOn) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// BreakerBackoff is the wait between probes: a strategy with its options, or auto.
type BreakerBackoff struct {
	text    string
	backoff backoff.Strategy // nil: auto
}

// UnmarshalText parses auto, or a strategy and options such as "slots base=100ms".
func (b *BreakerBackoff) UnmarshalText(text []byte) error {
	*b = BreakerBackoff{}
	words := strings.Fields(string(text))
	switch {
	case len(words) == 0:
		return errors.New("no strategy")
	case len(words) == 1 && strings.EqualFold(words[0], "auto"):
		return nil
	}
	var o backoff.Options
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if err := strategy.Set(&o, key, value); err != nil {
			return err
		}
	}
	backoff, err := backoff.New(words[0], o)
	if err != nil {
		return err
	}
	if ignored := strategy.Ignored(words[0], o); len(ignored) > 0 {
		return fmt.Errorf("%s does not use %s", words[0], strings.Join(ignored, ", "))
	}
	*b = BreakerBackoff{strings.Join(words, " "), backoff}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (b BreakerBackoff) MarshalText() ([]byte, error) {
	if b.backoff == nil {
		return []byte("auto"), nil
	}
	return []byte(b.text), nil
}
