package settings

import (
	"errors"
	"strings"
)

// ProbePath is what a probe asks for: a path, with a query if need be, or off.
type ProbePath struct{ path string }

// Set reports that there is a path.
func (p ProbePath) Set() bool { return p.path != "" }

// Path is the path; "" when off.
func (p ProbePath) Path() string { return p.path }

// String is the setting as a user would write it.
func (p ProbePath) String() string {
	if !p.Set() {
		return "off"
	}
	return p.path
}

// maxProbePath is the longest path in bytes; a probe has to fit a small read
// buffer of any server.
const maxProbePath = 2048

// UnmarshalText reads "off" or what may stand in a request line (RFC 9112
// section 3.2.1).
func (p *ProbePath) UnmarshalText(text []byte) error {
	s := string(text)
	switch {
	case strings.EqualFold(s, "off"):
		*p = ProbePath{}
		return nil
	case !strings.HasPrefix(s, "/"):
		return errors.New("it does not begin with /")
	case strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) >= 0:
		return errors.New("it holds a space, a # or what is not ASCII; write those percent-encoded")
	case len(s) > maxProbePath:
		return errors.New("it is longer than 2048 bytes")
	}
	*p = ProbePath{path: s}
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (p ProbePath) MarshalText() ([]byte, error) { return []byte(p.String()), nil }
