package policy

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultFailing is the breaker-on setting where none is given.
const DefaultFailing = "502,503,504"

// FailingStatuses are the statuses by which an upstream is judged to fail as a
// whole; others say something of a request. The zero value is DefaultFailing. It is
// not changed after it was made.
type FailingStatuses struct {
	given bool
	codes codeSet
}

// ParseFailing reads a list of statuses and ranges from 500 to 599, such as
// "500,502-504", or "none". The error names every bad entry.
func ParseFailing(s string) (FailingStatuses, error) {
	set, err := ParseRejected(s)
	if err != nil {
		return FailingStatuses{}, err
	}
	var errs []error
	for _, run := range set.codes.runs() {
		if run.first < 500 {
			errs = append(errs, fmt.Errorf("%s: statuses go from 500 to %d here", run, maxCode))
		}
	}
	f := FailingStatuses{given: true, codes: set.codes}
	if f.String() == DefaultFailing {
		f = FailingStatuses{} // equal lists are equal values
	}
	return f, errors.Join(errs...)
}

// Has reports whether status is one of them. It does not allocate.
func (f *FailingStatuses) Has(status int) bool {
	if !f.given {
		return status >= 502 && status <= 504
	}
	return f.codes.has(status)
}

// String is the list as ParseFailing reads it.
func (f FailingStatuses) String() string {
	if !f.given {
		return DefaultFailing
	}
	var items []string
	for _, run := range f.codes.runs() {
		for code := run.first; code <= run.last; code++ {
			items = append(items, fmt.Sprint(code))
		}
	}
	if items == nil {
		return "none"
	}
	return strings.Join(items, ",")
}
