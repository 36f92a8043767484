package config

import (
	"errors"
	"strings"
)

// sharing determines which requests belong together: those of the route, those with the
// same value of a header, the same model or both, or those selected by the setting's own word.
type sharing struct{ text string }

const (
	headerKey = "header:"
	modelKey  = "json:model"
)

// Route reports whether all requests of the route belong together.
func (s sharing) Route() bool { return s.text == "route" }

// Header returns the name of the header, "" if there is none.
func (s sharing) Header() string {
	name, ok := strings.CutPrefix(s.text, headerKey)
	if !ok {
		return ""
	}
	return strings.TrimSuffix(name, ","+modelKey)
}

// Model reports whether the model in the body of a request belongs to the key.
func (s sharing) Model() bool { return s.text == modelKey || strings.HasSuffix(s.text, ","+modelKey) }

// ByValue reports whether requests with the same value belong together.
func (s sharing) ByValue() bool { return s.Header() != "" || s.Model() }

// read parses "route", "header:Name", "json:model", "header:Name,json:model" or the setting's own word.
func (s *sharing) read(text []byte, word string) error {
	read := sharing{string(text)}
	if read.text != word && read.text != modelKey && !read.Route() && !isToken(read.Header()) {
		return errors.New("not one of these words and not a header name")
	}
	*s = read
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (s sharing) MarshalText() ([]byte, error) { return []byte(s.text), nil }

// shared checks that an engine is only used for an upstream that all processes share.
func (c *checker) shared() {
	s := c.s
	if s.SharedEngine.Set() && s.Position == "inbound" {
		c.problems.errorf(Prefix+"SHARED", s.SharedEngine.Name(),
			"sharing needs the same upstream for all processes, but each inbound process has its own (%s); if all have the same one, set %sPOSITION=outbound", s.Default.Upstream, Prefix)
	}
}
