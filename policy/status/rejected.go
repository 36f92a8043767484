package status

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultRejected is the default retry-rejected setting.
const DefaultRejected = "429"

// Set is the set of statuses that mean that the upstream did not do the work. A failure with one of
// them is policy.Rejected, and a request of any method may be retried. The zero value is
// DefaultRejected: a rate limiter rejects a request before the work begins. It does not change
// after it was made, so copies are safe for concurrent use.
type Set struct {
	Codes Codes
	given bool // Codes replaces the default, even if it is empty
}

// minRejected is the lowest status allowed: only a failure can mean that the work was not
// done.
const minRejected = 400

// ParseRejected parses a list of statuses and ranges such as "429,503,529", which replaces
// the default. Space around an entry is ignored; "none" alone is the empty set. The error
// names every bad entry.
func ParseRejected(s string) (Set, error) {
	set := Set{given: true}
	if strings.TrimSpace(s) == "none" {
		return set, nil
	}
	var errs []error
	for _, item := range strings.Split(s, ",") {
		if err := set.add(strings.TrimSpace(item)); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Set{}, err
	}
	return set, nil
}

// add parses one entry of a list and adds it.
func (s *Set) add(item string) error {
	if item == "" {
		return errors.New(`an empty entry (for no status at all say "none")`)
	}
	first, last, isRange := strings.Cut(item, "-")
	if !isRange {
		last = first
	}
	run := Run{ParseCode(first), ParseCode(last)}
	switch {
	case run.First < 0 || run.Last < 0:
		return fmt.Errorf("%q is neither a status nor a range such as 520-529", item)
	case run.First < minRejected || run.Last > MaxCode:
		return fmt.Errorf("%q is not within %d to %d", item, minRejected, MaxCode)
	case run.First > run.Last:
		return fmt.Errorf("%q is a range whose end comes first", item)
	}
	s.Codes.Add(run)
	return nil
}

// Has reports whether status is in the set. It does not allocate.
func (s *Set) Has(status int) bool {
	if !s.given {
		return status == 429
	}
	return s.Codes.Has(status)
}

// String returns the list in the syntax of ParseRejected.
func (s Set) String() string {
	if !s.given {
		return DefaultRejected
	}
	var items []string
	for _, run := range s.Codes.Runs() {
		items = append(items, run.String())
	}
	if items == nil {
		return "none"
	}
	return strings.Join(items, ",")
}
