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

// shared checks that settings for an engine come with one, and that an engine is only used
// for an upstream that all processes share.
func (c *checker) shared() {
	s := c.s
	files := []struct{ key, value string }{
		{"SHARED_PASSWORD_FILE", s.SharedPasswordFile}, {"SHARED_CA", s.SharedCA}, {"SHARED_CERT", s.SharedCert}, {"SHARED_KEY", s.SharedKey},
	}
	for i, f := range files {
		switch {
		case f.value == "":
		case !s.SharedEngine.Set():
			c.problems.errorf(Prefix+f.key, f.value, "has no effect without %sSHARED", Prefix)
		case i > 0 && !s.SharedEngine.TLS:
			c.problems.errorf(Prefix+f.key, f.value, "has no effect on %sSHARED=%s; use rediss:// for TLS", Prefix, s.SharedEngine.Name())
		}
	}
	if (s.SharedCert == "") != (s.SharedKey == "") {
		c.problems.errorf(Prefix+"SHARED_CERT", s.SharedCert, "%[1]sSHARED_CERT and %[1]sSHARED_KEY must be set together", Prefix)
	}
	switch {
	case !s.SharedEngine.Set() && s.Variable("SHARED_SCOPE") != "":
		c.problems.errorf(Prefix+"SHARED_SCOPE", s.SharedScope, "has no effect without %sSHARED", Prefix)
	case s.SharedEngine.Set() && s.Position == "inbound":
		c.problems.errorf(Prefix+"SHARED", s.SharedEngine.Name(),
			"sharing needs the same upstream for all processes, but each inbound process has its own (%s); if all have the same one, set %sPOSITION=outbound", s.Default.Upstream, Prefix)
	}
}
