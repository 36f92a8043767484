package settings

import (
	"errors"
	"fmt"
	"strings"
)

// Problem is one thing wrong with the configuration, told so that a user can
// put it right without reading anything else.
type Problem struct {
	Variable string // what to change, e.g. RETRYPROXY_MAX_RETRIES; never ""
	Value    string // what it said, secrets masked; "" when it is not set
	Message  string // what is wrong and what was expected
	Warning  bool   // the start goes on in spite of it
}

// String is one line: RETRYPROXY_MAX_RETRIES="many": expected a whole number.
func (p Problem) String() string {
	if p.Value == "" {
		return p.Variable + ": " + p.Message
	}
	return fmt.Sprintf("%s=%q: %s", p.Variable, p.Value, p.Message)
}

// Problems are all that was found, in the order it was found.
type Problems []Problem

// Errors returns those that stop the start.
func (ps Problems) Errors() Problems { return ps.pick(false) }

// Warnings returns the others.
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

// ErrInvalid is what Problems.Err wraps.
var ErrInvalid = errors.New("the configuration is not valid")

// Err is nil when nothing stops the start, else an error of one line per
// error that matches ErrInvalid.
func (ps Problems) Err() error {
	bad := ps.Errors()
	if len(bad) == 0 {
		return nil
	}
	var b strings.Builder
	for _, p := range bad {
		b.WriteString("\n  ")
		b.WriteString(p.String())
	}
	return fmt.Errorf("%w:%s", ErrInvalid, b.String())
}

// add notes a problem once: a global value that is wrong is wrong for every
// route that inherits it, and said one time.
func (ps *Problems) add(p Problem) {
	p.Value = Mask(p.Value)
	for _, have := range *ps {
		if have == p {
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

// oneLine joins the lines of a joined error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Mask hides the user name and password of every URL in s, and of what looks
// like a URL whose scheme was forgotten. It rather hides too much: a password
// with an unescaped slash is hidden too.
func Mask(s string) string {
	parts := strings.Split(s, "://")
	for i, part := range parts {
		if at := strings.LastIndexByte(part, '@'); at >= 0 && (i > 0 || len(parts) == 1) {
			parts[i] = "***" + part[at:]
		}
	}
	return strings.Join(parts, "://")
}
