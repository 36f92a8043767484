package policy

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultRejected is the retry-rejected setting where none is given.
const DefaultRejected = "429"

// StatusSet is the statuses by which an upstream says that it did not do the
// work: a failure with one of them is Rejected, and a request of any method may
// be sent again. The zero value is DefaultRejected: a rate limiter refuses a
// request before the work begins. It is not changed after it was made, so copies
// may be used by many goroutines at once.
type StatusSet struct {
	codes codeSet
	given bool // codes were given, if only none of them
}

// Statuses that say that the work was not done are failures.
const minRejected = 400

// ParseRejected reads a list of statuses and ranges such as "429,503,529", which
// takes the place of the default. Space around an entry is ignored; "none" alone
// is the empty set. The error names every bad entry.
func ParseRejected(s string) (StatusSet, error) {
	set := StatusSet{given: true}
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
		return StatusSet{}, err
	}
	return set, nil
}

// add takes one entry of a list.
func (s *StatusSet) add(item string) error {
	if item == "" {
		return errors.New(`an empty entry (for no status at all say "none")`)
	}
	first, last, isRange := strings.Cut(item, "-")
	if !isRange {
		last = first
	}
	run := codeRun{parseCode(first), parseCode(last)}
	switch {
	case run.first < 0 || run.last < 0:
		return fmt.Errorf("%q is neither a status nor a range such as 520-529", item)
	case run.first < minRejected || run.last > maxCode:
		return fmt.Errorf("%q: statuses go from %d to %d here", item, minRejected, maxCode)
	case run.first > run.last:
		return fmt.Errorf("%q: the range runs backwards", item)
	}
	s.codes.add(run)
	return nil
}

// Has reports whether status is in the set. It does not allocate.
func (s *StatusSet) Has(status int) bool {
	if !s.given {
		return status == 429
	}
	return s.codes.has(status)
}

// String is the list as ParseRejected reads it.
func (s StatusSet) String() string {
	if !s.given {
		return DefaultRejected
	}
	var items []string
	for _, run := range s.codes.runs() {
		items = append(items, run.String())
	}
	if items == nil {
		return "none"
	}
	return strings.Join(items, ",")
}

// Beyond lists what of s is no failure by on, so that naming it has no effect.
func (s StatusSet) Beyond(on *RetryOn) []string {
	var items []string
	beyond := s.codes.without(&on.codes)
	for _, run := range beyond.runs() {
		items = append(items, run.String())
	}
	return items
}
