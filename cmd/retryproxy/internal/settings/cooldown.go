package settings

import (
	"errors"
	"strings"
)

// CooldownKey is which requests share the pause that a 429 asks for: one of
// the words none and route, or a field.
type CooldownKey struct{ text string }

const headerKey = "header:"

// None and Route report the two words.
func (k CooldownKey) None() bool { return k.text == "none" }

// Route reports that all requests of the route share the pause.
func (k CooldownKey) Route() bool { return k.text == "route" }

// Header is the name of the field by whose value requests share the pause, ""
// when none was given.
func (k CooldownKey) Header() string { return keyHeader(k.text) }

// keyHeader is the name in header:Name, "" when text is something else.
func keyHeader(text string) string {
	name, ok := strings.CutPrefix(text, headerKey)
	if !ok {
		return ""
	}
	return name
}

// UnmarshalText reads "none", "route" or "header:Name".
func (k *CooldownKey) UnmarshalText(text []byte) error {
	read := CooldownKey{string(text)}
	if !read.None() && !read.Route() && !isToken(read.Header()) {
		return errors.New("neither of the words, and no field's name")
	}
	*k = read
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (k CooldownKey) MarshalText() ([]byte, error) { return []byte(k.text), nil }

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
