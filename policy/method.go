package policy

import (
	"errors"
	"fmt"
	"strings"
)

// idempotent lists the methods that are idempotent by definition (RFC 9110 section 9.2.2:
// the safe ones of 9.2.1, PUT and DELETE).
var idempotent = []string{"GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"}

// standard lists the methods of RFC 9110 section 9 and RFC 5789.
var standard = append([]string{"POST", "PATCH", "CONNECT"}, idempotent...)

// maxMethods limits the length of a list, and so the cost of a lookup.
const maxMethods = 32

// MethodSet is a set of request methods. The zero value is the idempotent methods of RFC
// 9110: GET, HEAD, OPTIONS, TRACE, PUT, DELETE. It does not change after it was made, so
// copies are safe for concurrent use.
type MethodSet struct {
	names []string
	given bool // names replaces the default, even if it is empty
}

// ParseMethods parses a list such as "GET,HEAD,POST", which replaces the default. Space
// around a name is ignored; "none" alone is the empty set. Methods are case-sensitive (RFC
// 9110 section 9.1), so a standard method in another case is an error. The error names
// every bad entry.
func ParseMethods(s string) (MethodSet, error) {
	set := MethodSet{given: true}
	if strings.TrimSpace(s) == "none" {
		return set, nil
	}
	var errs []error
	for _, name := range strings.Split(s, ",") {
		name = strings.TrimSpace(name)
		if err := checkMethod(name); err != nil {
			errs = append(errs, err)
		} else if !set.Has([]byte(name)) {
			set.names = append(set.names, name)
		}
	}
	if len(set.names) > maxMethods {
		errs = append(errs, fmt.Errorf("%d methods; at most %d", len(set.names), maxMethods))
	}
	if err := errors.Join(errs...); err != nil {
		return MethodSet{}, err
	}
	return set, nil
}

// checkMethod returns an error if name is no method, or a standard one in another case.
func checkMethod(name string) error {
	if name == "" {
		return errors.New(`an empty method name (for no method at all say "none")`)
	}
	if !isToken(name) {
		return fmt.Errorf("%q is not a method name", name)
	}
	if meant := MeantMethod(name); meant != "" {
		return fmt.Errorf("method %q: did you mean %s? methods are case-sensitive", name, meant)
	}
	return nil
}

// MeantMethod returns the standard method that name is in another case, or "". Methods are
// case-sensitive, so that name is probably a mistake.
func MeantMethod(name string) string {
	for _, known := range standard {
		if name != known && strings.EqualFold(name, known) {
			return known
		}
	}
	return ""
}

// Has reports whether method is in the set. It does not allocate.
func (m MethodSet) Has(method []byte) bool {
	names := m.names
	if !m.given {
		names = idempotent
	}
	for _, name := range names {
		if string(method) == name {
			return true
		}
	}
	return false
}

// String returns the list in the syntax of ParseMethods.
func (m MethodSet) String() string {
	switch {
	case !m.given:
		return strings.Join(idempotent, ",")
	case len(m.names) == 0:
		return "none"
	}
	return strings.Join(m.names, ",")
}

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
