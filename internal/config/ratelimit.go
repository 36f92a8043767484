package config

import "github.com/retryproxy/retryproxy/policy/ratelimit"

// RateLimit is the setting for a ratelimit.Rate, or for learned limits.
type RateLimit struct {
	ratelimit.Rate
	Auto bool
}

// UnmarshalText parses off, auto, or text with ratelimit.ParseRate.
func (q *RateLimit) UnmarshalText(text []byte) error {
	*q = RateLimit{Auto: string(text) == autoWord}
	if q.Auto || string(text) == "off" {
		return nil
	}
	rate, err := ratelimit.ParseRate(string(text))
	q.Rate = rate
	return err
}

// Limited reports whether there is a limit, configured or learned.
func (q RateLimit) Limited() bool { return q.Auto || q.Rate.Limited() }

// String is the inverse of UnmarshalText.
func (q RateLimit) String() string {
	if q.Auto {
		return autoWord
	}
	return q.Rate.String()
}

const autoWord = "auto"

// MarshalText is the inverse of UnmarshalText.
func (q RateLimit) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// TokenLimit is the setting for a ratelimit.TokenRate.
type TokenLimit struct{ ratelimit.TokenRate }

// UnmarshalText parses off, or text with ratelimit.ParseTokenRate.
func (q *TokenLimit) UnmarshalText(text []byte) error {
	if string(text) == "off" {
		*q = TokenLimit{}
		return nil
	}
	rate, err := ratelimit.ParseTokenRate(string(text))
	q.TokenRate = rate
	return err
}

// MarshalText is the inverse of UnmarshalText.
func (q TokenLimit) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// RateLimitKey determines which requests share a rate limit: upstream, route, a header, the model, or
// a header and the model. Requests without the value share one.
type RateLimitKey struct{ sharing }

// Upstream reports whether all requests to the upstream share it.
func (k RateLimitKey) Upstream() bool { return k.text == "upstream" }

// UnmarshalText parses "upstream", "route", "header:Name", "json:model" or "header:Name,json:model".
func (k *RateLimitKey) UnmarshalText(text []byte) error { return k.read(text, "upstream") }

// rateLimit warns about a wait or a key without a rate limit.
func (c *checker) rateLimit() {
	limited := func(r *Route) bool { return r.RateLimit.Limited() || r.TokenLimit.Limited() }
	if limited(c.r) || c.r == &c.s.Default && c.s.anyRoute(limited) {
		return
	}
	if c.own("RATE_LIMIT_WAIT") {
		c.warnf("RATE_LIMIT_WAIT", DurationText(c.r.RateLimitWait), "has no effect with %s=off", c.name("RATE_LIMIT"))
	}
	if c.own("RATE_LIMIT_KEY") && !c.r.RateLimitKey.Upstream() {
		c.warnf("RATE_LIMIT_KEY", c.r.RateLimitKey.text, "has no effect with %s=off", c.name("RATE_LIMIT"))
	}
}

// PauseKey determines which requests share the pause that a 429 asks for: none, route, a header, the
// model, or a header and the model.
type PauseKey struct{ sharing }

// None reports whether each request pauses for itself.
func (k PauseKey) None() bool { return k.text == "none" }

// UnmarshalText parses "none", "route", "header:Name", "json:model" or "header:Name,json:model".
func (k *PauseKey) UnmarshalText(text []byte) error { return k.read(text, "none") }

// rateLimitPause warns about a maximum for pauses that are not shared.
func (c *checker) rateLimitPause() {
	if c.own("RATE_LIMIT_PAUSE_MAX") && c.r.RateLimitPauseKey.None() && (c.r != &c.s.Default || !c.s.anyRoute(func(r *Route) bool { return !r.RateLimitPauseKey.None() })) {
		c.warnf("RATE_LIMIT_PAUSE_MAX", DurationText(c.r.RateLimitPauseMax), "has no effect: with %s=none every request pauses for itself", c.name("RATE_LIMIT_PAUSE_KEY"))
	}
}
