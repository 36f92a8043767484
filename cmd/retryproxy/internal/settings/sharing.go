package settings

import (
	"errors"
	"strings"
)

// sharing is which requests have something together: those of the route, those
// with the same value in a field, or what a word of the setting's own says.
type sharing struct{ text string }

const headerKey = "header:"

// Route reports that it is all requests of the route.
func (s sharing) Route() bool { return s.text == "route" }

// Header is the name of the field by whose value it is, "" when none was given.
func (s sharing) Header() string {
	name, ok := strings.CutPrefix(s.text, headerKey)
	if !ok {
		return ""
	}
	return name
}

// read takes "route", "header:Name" or the setting's own word.
func (s *sharing) read(text []byte, word string) error {
	read := sharing{string(text)}
	if read.text != word && !read.Route() && !isToken(read.Header()) {
		return errors.New("neither of the words, and no field's name")
	}
	*s = read
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (s sharing) MarshalText() ([]byte, error) { return []byte(s.text), nil }
