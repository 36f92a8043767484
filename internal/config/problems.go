package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Problem is one problem of the configuration, with everything needed to fix it.
type Problem struct {
	Variable string // the variable to change, e.g. RETRYPROXY_MAX_RETRIES; never ""
	Place    string // where a file sets it, as file:line; "" if none does
	Key      string // what that file calls it: the variable, or routes[1].max_retries in YAML; "" for the file itself
	Value    string // its value, secrets masked; "" if there is none
	Default  bool   // nobody set the value
	Message  string // what is wrong and what was expected
	Warning  bool   // it does not stop the start
}

// String returns one line: RETRYPROXY_MAX_RETRIES="many": expected a whole number. For a setting of a
// YAML file it is retryproxy.yaml:12: max_retries: "many": expected a whole number.
func (p Problem) String() string {
	place, name, equals := "", p.Variable, "="
	if p.Place != "" {
		place, name = p.Place+": ", p.Key
		if p.Key != p.Variable {
			equals = ": "
		}
	}
	switch {
	case name == "":
		return place + p.Message
	case p.Value == "":
		return place + name + ": " + p.Message
	case p.Default:
		return fmt.Sprintf("%s%s (default %s): %s", place, name, p.Value, p.Message)
	}
	return fmt.Sprintf("%s%s%s%q: %s", place, name, equals, p.Value, p.Message)
}

// Problems is a list of problems, in the order in which they were found.
type Problems []Problem

// Errors returns the problems that stop the start.
func (ps Problems) Errors() Problems { return ps.pick(false) }

// Warnings returns the problems that do not stop the start.
func (ps Problems) Warnings() Problems { return ps.pick(true) }

func (ps Problems) pick(warning bool) Problems {
	var picked Problems
	for _, p := range ps {
		if p.Warning == warning {
			picked = append(picked, p)
		}
	}
	return picked
}

// hasError reports whether a variable has a problem that stops the start.
func (ps Problems) hasError(variable string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Variable == variable && !p.Warning })
}

// ErrInvalid matches the error of Problems.Err.
var ErrInvalid = errors.New("the configuration is not valid")

// Err returns nil if nothing stops the start. Otherwise the error has one line per problem that does,
// and matches ErrInvalid. ProblemsOf returns the problems again.
func (ps Problems) Err() error {
	if len(ps.Errors()) == 0 {
		return nil
	}
	return &invalid{ps}
}

type invalid struct{ problems Problems }

func (e *invalid) Error() string {
	lines := []string{ErrInvalid.Error() + ":"}
	for _, p := range e.problems.Errors() {
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n  ")
}

func (e *invalid) Unwrap() error { return ErrInvalid }

// ProblemsOf returns the problems of an error of Build or Problems.Err, each with the variable to
// change, warnings included; nil for another error.
func ProblemsOf(err error) Problems {
	var e *invalid
	if errors.As(err, &e) {
		return e.problems
	}
	return nil
}

// add adds a problem once: an invalid global value is invalid for every route that inherits
// it, but reported only once. The message may repeat the value, or quote parts of it. A warning about
// the default that takes the place of an invalid value is left out: nobody set that.
func (ps *Problems) add(p Problem) {
	value := Mask(p.Value)
	if value != p.Value {
		p.Message = strings.ReplaceAll(p.Message, p.Value, value)
	}
	p.Value, p.Message = value, quotedText.ReplaceAllStringFunc(p.Message, maskQuoted)
	for _, have := range *ps {
		if have == p || p.Warning && !have.Warning && have.Variable == p.Variable && have.Value != p.Value {
			return
		}
	}
	*ps = append(*ps, p)
}

func (ps *Problems) errorf(variable, value, format string, args ...any) {
	ps.add(Problem{Variable: variable, Value: value, Message: fmt.Sprintf(format, args...)})
}

func (ps *Problems) warnf(variable, value, format string, args ...any) {
	ps.add(Problem{Variable: variable, Value: value, Message: fmt.Sprintf(format, args...), Warning: true})
}

// joined returns the errors that err joins: none for nil, and err itself if it joins none.
func joined(err error) []error {
	var several interface{ Unwrap() []error }
	switch {
	case err == nil:
		return nil
	case errors.As(err, &several):
		return several.Unwrap()
	}
	return []error{err}
}

// oneLine joins the lines of a joined error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// quotedText matches what %q writes.
var quotedText = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

func maskQuoted(s string) string { return `"` + Mask(s[1:len(s)-1]) + `"` }

// Mask hides the user name and password of every URL in s, and of URLs without scheme, and
// everything after a question mark. If in doubt it hides more: it also hides a password with an
// unescaped slash.
func Mask(s string) string {
	s, _, query := strings.Cut(maskUsers(s), "?")
	if query {
		s += "?***"
	}
	return s
}

// maskUsers hides what Mask hides, except what follows a question mark.
func maskUsers(s string) string {
	parts := strings.Split(s, "://")
	for i, part := range parts {
		if at := strings.LastIndexByte(part, '@'); at >= 0 {
			parts[i] = "***" + part[at:]
		}
	}
	return strings.Join(parts, "://")
}
