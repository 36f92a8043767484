package status

import (
	"errors"
	"fmt"
	"strings"
)

// DefaultFailing is the default breaker-on setting.
const DefaultFailing = "502,503,504"

// Failing is the set of statuses that count as failures of the upstream as a whole; other
// statuses concern a single request. The zero value is DefaultFailing. It does not change
// after it was made.
type Failing struct {
	given bool
	codes Codes
}

// ParseFailing parses a list of statuses and ranges from 500 to 599, such as "500,502-504",
// or "none". The error names every bad entry.
func ParseFailing(s string) (Failing, error) {
	set, err := ParseRejected(s)
	if err != nil {
		return Failing{}, err
	}
	var errs []error
	for _, run := range set.Codes.Runs() {
		if run.First < 500 {
			errs = append(errs, fmt.Errorf("%s: statuses go from 500 to %d here", run, MaxCode))
		}
	}
	f := Failing{given: true, codes: set.Codes}
	if f.String() == DefaultFailing {
		f = Failing{} // equal lists are equal values
	}
	return f, errors.Join(errs...)
}

// Has reports whether status is in the set. It does not allocate.
func (f *Failing) Has(status int) bool {
	if !f.given {
		return status >= 502 && status <= 504
	}
	return f.codes.Has(status)
}

// String returns the list in the syntax of ParseFailing.
func (f Failing) String() string {
	if !f.given {
		return DefaultFailing
	}
	var items []string
	for _, run := range f.codes.Runs() {
		for code := run.First; code <= run.Last; code++ {
			items = append(items, fmt.Sprint(code))
		}
	}
	if items == nil {
		return "none"
	}
	return strings.Join(items, ",")
}
