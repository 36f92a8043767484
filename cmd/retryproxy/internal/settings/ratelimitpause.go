package settings

// PauseKey is which requests share the pause that a 429 asks for: one of
// the words none and route, or a field.
type PauseKey struct{ sharing }

// None reports that each request pauses for itself.
func (k PauseKey) None() bool { return k.text == "none" }

// UnmarshalText reads "none", "route" or "header:Name".
func (k *PauseKey) UnmarshalText(text []byte) error { return k.read(text, "none") }

// rateLimitPause: a bound on what is not shared.
func (c *checker) rateLimitPause() {
	if c.own("RATE_LIMIT_PAUSE_MAX") && c.r.RateLimitPauseKey.None() && (c.r != &c.s.Default || !c.s.anyRateLimitPause()) {
		c.warnf("RATE_LIMIT_PAUSE_MAX", DurationText(c.r.RateLimitPauseMax), "has no effect: with %s=none every request pauses for itself", c.name("RATE_LIMIT_PAUSE_KEY"))
	}
}

// anyRateLimitPause reports that some route shares pauses.
func (s *Settings) anyRateLimitPause() bool {
	for i := range s.Routes {
		if !s.Routes[i].RateLimitPauseKey.None() {
			return true
		}
	}
	return false
}
