package policy

import (
	"fmt"
	"strings"
	"time"
)

// Profile is a set of defaults for one kind of client. Every setting that is
// given explicitly goes before it.
type Profile struct {
	Name           string
	Summary        string // one sentence
	MaxRetries     int
	RequestTimeout time.Duration // all attempts and waits
	AttemptTimeout time.Duration // 0: none while there is one endpoint, see SlowAttempt
	Backoff        string        // as New takes it, with the strategy's own defaults
	ThrottledBase  time.Duration
}

// profiles, the default first.
var profiles = []Profile{
	{
		Name:           "interactive",
		Summary:        "Somebody waits for the response: few retries, quick ones, all within 30 s.",
		MaxRetries:     3,
		RequestTimeout: 30 * time.Second,
		Backoff:        DefaultStrategy,
		ThrottledBase:  time.Second,
	},
	{
		// Eight additive waits are 132 s at the longest, which leaves each
		// attempt five seconds of the 180.
		Name:           "batch",
		Summary:        "Nobody waits: eight retries, patient ones, all within 180 s.",
		MaxRetries:     8,
		RequestTimeout: 180 * time.Second,
		Backoff:        "additive",
		ThrottledBase:  time.Second,
	},
}

// DefaultProfile is the name of the profile where none is given.
const DefaultProfile = "interactive"

// Profiles lists all profiles, the default first. The slice belongs to the
// client.
func Profiles() []Profile { return append([]Profile(nil), profiles...) }

// FindProfile gives the profile of that name.
func FindProfile(name string) (Profile, error) {
	names := make([]string, 0, len(profiles))
	for _, p := range profiles {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("unknown profile %q; there is %s", name, strings.Join(names, ", "))
}

// Policy is the policy of the profile where nothing else is set: with
// DefaultRetryOn and the idempotent methods. It fails only for a profile that
// does not come from this package.
func (p Profile) Policy() (Policy, error) {
	on, err := ParseRetryOn(DefaultRetryOn)
	if err != nil {
		return Policy{}, err
	}
	usual, err := New(p.Backoff, Options{})
	if err != nil {
		return Policy{}, err
	}
	throttled, err := NewThrottled(p.Backoff, Options{}, p.ThrottledBase)
	if err != nil {
		return Policy{}, err
	}
	return Policy{RetryOn: on, MaxRetries: p.MaxRetries, Backoff: usual, Throttled: throttled}, nil
}
