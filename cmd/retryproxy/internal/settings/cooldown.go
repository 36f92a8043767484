package settings

// CooldownKey is which requests share the pause that a 429 asks for: one of
// the words none and route, or a field.
type CooldownKey struct{ sharing }

// None reports that each request pauses for itself.
func (k CooldownKey) None() bool { return k.text == "none" }

// UnmarshalText reads "none", "route" or "header:Name".
func (k *CooldownKey) UnmarshalText(text []byte) error { return k.read(text, "none") }

// cooldown: a bound on what is not shared.
func (c *checker) cooldown() {
	if c.own("COOLDOWN_MAX") && c.r.CooldownKey.None() && (c.r != &c.s.Default || !c.s.anyCooldown()) {
		c.warnf("COOLDOWN_MAX", DurationText(c.r.CooldownMax), "has no effect: with %s=none every request pauses for itself", c.name("COOLDOWN_KEY"))
	}
}

// anyCooldown reports that some route shares pauses.
func (s *Settings) anyCooldown() bool {
	for i := range s.Routes {
		if !s.Routes[i].CooldownKey.None() {
			return true
		}
	}
	return false
}
