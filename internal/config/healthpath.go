package config

import (
	"errors"
	"strings"
)

// HealthPath is the path of a health check, with an optional query, or off.
type HealthPath struct{ path string }

// Set reports whether there is a path.
func (p HealthPath) Set() bool { return p.path != "" }

// Path returns the path; "" if it is off.
func (p HealthPath) Path() string { return p.path }

// String returns the setting as a user would write it.
func (p HealthPath) String() string {
	if !p.Set() {
		return "off"
	}
	return p.path
}

// maxHealthPath is the maximum length in bytes; a check must fit a small read buffer of any
// server.
const maxHealthPath = 2048

// UnmarshalText parses "off" or an origin-form target (RFC 9112 section 3.2.1).
func (p *HealthPath) UnmarshalText(text []byte) error {
	s := string(text)
	switch {
	case strings.EqualFold(s, "off"):
		*p = HealthPath{}
		return nil
	case !strings.HasPrefix(s, "/"):
		return errors.New("it does not begin with /")
	case strings.HasPrefix(s, "//"):
		return errors.New("it begins with //")
	case strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) >= 0:
		return errors.New("it has a space, a # or a non-ASCII character; percent-encode it")
	case len(s) > maxHealthPath:
		return errors.New("it is longer than 2048 bytes")
	}
	*p = HealthPath{path: s}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (p HealthPath) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
