package settings

import "github.com/retryproxy/retryproxy/policy"

// RateLimit is a policy.RateLimit.
type RateLimit struct{ policy.RateLimit }

// UnmarshalText reads what policy.ParseQuota reads, or off.
func (q *RateLimit) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*q = RateLimit{}
		return nil
	}
	rate, err := policy.ParseRateLimit(string(text))
	q.RateLimit = rate
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (q RateLimit) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// RateLimitKey is which requests have a rate limit together: one of the words upstream
// and route, or a field, without which requests have one together.
type RateLimitKey struct{ sharing }

// Upstream reports that it is all requests to the upstream.
func (k RateLimitKey) Upstream() bool { return k.text == "upstream" }

// UnmarshalText reads "upstream", "route" or "header:Name".
func (k *RateLimitKey) UnmarshalText(text []byte) error { return k.read(text, "upstream") }

// rateLimit: a wait for what there is none of, or whose it is.
func (c *checker) rateLimit() {
	if c.r.RateLimit.Limited() || c.r == &c.s.Default && c.s.anyRateLimit() {
		return
	}
	if c.own("RATE_LIMIT_WAIT") {
		c.warnf("RATE_LIMIT_WAIT", DurationText(c.r.RateLimitWait), "has no effect with %s=off", c.name("RATE_LIMIT"))
	}
	if c.own("RATE_LIMIT_KEY") && !c.r.RateLimitKey.Upstream() {
		c.warnf("RATE_LIMIT_KEY", c.r.RateLimitKey.text, "has no effect with %s=off", c.name("RATE_LIMIT"))
	}
}

// anyRateLimit reports that some route has one.
func (s *Settings) anyRateLimit() bool {
	for i := range s.Routes {
		if s.Routes[i].RateLimit.Limited() {
			return true
		}
	}
	return false
}
