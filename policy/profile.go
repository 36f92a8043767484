package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/status"
)

// Profile is a set of defaults for one kind of client. Every explicit setting takes
// precedence over it.
type Profile struct {
	Name           string
	MaxRetries     int
	RequestTimeout time.Duration // all attempts and waits
	QueueTimeout   time.Duration // the longest wait at an open breaker; 0: by position
	AttemptTimeout time.Duration // 0: none with a single endpoint; see hedge.SlowAttempt
	Backoff        string        // in the syntax of backoff.New, with the strategy's own defaults
	ThrottledBase  time.Duration
	Rejected       string // see Policy.Rejected, in the syntax of status.ParseRejected
}

// profiles, the default first.
var profiles = []Profile{
	{
		// Somebody waits for the response: few retries, quick ones.
		Name:           "interactive",
		MaxRetries:     3,
		RequestTimeout: 30 * time.Second,
		Backoff:        backoff.Default,
		ThrottledBase:  time.Second,
		Rejected:       "429",
	},
	{
		// Nobody waits: more retries, patient ones. Eight additive waits take 132 s at most, which
		// leaves each attempt five seconds of the 180.
		Name:           "batch",
		MaxRetries:     8,
		RequestTimeout: 180 * time.Second,
		QueueTimeout:   180 * time.Second,
		Backoff:        "additive",
		ThrottledBase:  time.Second,
		Rejected:       "429",
	},
	{
		// For the API of a language model. LLM APIs report overload by 503 and 529, before a token
		// is generated (docs/reference/llm.md). Vendors' own clients wait ten minutes.
		Name:           "llm",
		MaxRetries:     8,
		RequestTimeout: 10 * time.Minute,
		QueueTimeout:   60 * time.Second,
		Backoff:        "additive",
		ThrottledBase:  time.Second,
		Rejected:       "429,503,529",
	},
}

// DefaultProfile is the name of the default profile.
const DefaultProfile = "interactive"

// Profiles returns all profiles, the default first. The slice belongs to the caller.
func Profiles() []Profile { return append([]Profile(nil), profiles...) }

// FindProfile returns the profile of that name, or an error that lists all names.
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

// Policy returns the policy of the profile if nothing else is set: with DefaultRetryOn and
// the idempotent methods. It fails only for a profile that does not come from this package.
func (p Profile) Policy() (Policy, error) {
	on, err := ParseRetryOn(DefaultRetryOn)
	if err != nil {
		return Policy{}, err
	}
	usual, err := backoff.New(p.Backoff, backoff.Options{})
	if err != nil {
		return Policy{}, err
	}
	rejected, err := status.ParseRejected(p.Rejected)
	if err != nil {
		return Policy{}, err
	}
	throttled, err := backoff.NewThrottled(p.Backoff, backoff.Options{}, p.ThrottledBase)
	if err != nil {
		return Policy{}, err
	}
	return Policy{RetryOn: on, MaxRetries: p.MaxRetries, Rejected: rejected, Backoff: usual, Throttled: throttled}, nil
}
