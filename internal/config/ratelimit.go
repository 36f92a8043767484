package config

import "github.com/retryproxy/retryproxy/policy/ratelimit"

// RateLimit is the setting for a ratelimit.Rate.
type RateLimit struct{ ratelimit.Rate }

// UnmarshalText parses off, or text with ratelimit.ParseRate.
func (q *RateLimit) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*q = RateLimit{}
		return nil
	}
	rate, err := ratelimit.ParseRate(string(text))
	q.Rate = rate
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (q RateLimit) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// RateLimitKey determines which requests share a rate limit: upstream, route, or a header.
// Requests without that header share one.
type RateLimitKey struct{ sharing }

// Upstream reports whether all requests to the upstream share it.
func (k RateLimitKey) Upstream() bool { return k.text == "upstream" }

// UnmarshalText parses "upstream", "route" or "header:Name".
func (k *RateLimitKey) UnmarshalText(text []byte) error { return k.read(text, "upstream") }

// rateLimit warns about a wait or a key without a rate limit.
func (c *checker) rateLimit() {
	if c.r.RateLimit.Limited() || c.r == &c.s.Default && c.s.anyRoute(func(r *Route) bool { return r.RateLimit.Limited() }) {
		return
	}
	if c.own("RATE_LIMIT_WAIT") {
		c.warnf("RATE_LIMIT_WAIT", DurationText(c.r.RateLimitWait), "has no effect with %s=off", c.name("RATE_LIMIT"))
	}
	if c.own("RATE_LIMIT_KEY") && !c.r.RateLimitKey.Upstream() {
		c.warnf("RATE_LIMIT_KEY", c.r.RateLimitKey.text, "has no effect with %s=off", c.name("RATE_LIMIT"))
	}
}

// PauseKey determines which requests share the pause that a 429 asks for: none, route, or a
// header.
type PauseKey struct{ sharing }

// None reports whether each request pauses for itself.
func (k PauseKey) None() bool { return k.text == "none" }

// UnmarshalText parses "none", "route" or "header:Name".
func (k *PauseKey) UnmarshalText(text []byte) error { return k.read(text, "none") }

// rateLimitPause warns about a maximum for pauses that are not shared.
func (c *checker) rateLimitPause() {
	if c.own("RATE_LIMIT_PAUSE_MAX") && c.r.RateLimitPauseKey.None() && (c.r != &c.s.Default || !c.s.anyRoute(func(r *Route) bool { return !r.RateLimitPauseKey.None() })) {
		c.warnf("RATE_LIMIT_PAUSE_MAX", DurationText(c.r.RateLimitPauseMax), "has no effect: with %s=none every request pauses for itself", c.name("RATE_LIMIT_PAUSE_KEY"))
	}
}
