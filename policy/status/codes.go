// Package status provides sets of HTTP status codes and parses the lists that name them in
// settings.
package status

import "fmt"

// Limits of the statuses in a rule. 1xx are never final, and RFC 9110 section 15 ends the
// valid ones at 599.
const (
	MinCode = 200
	MaxCode = 599
)

// Run is the codes from First to Last, both included.
type Run struct{ First, Last int }

// String returns the code, or "first-last".
func (c Run) String() string {
	if c.First == c.Last {
		return fmt.Sprint(c.First)
	}
	return fmt.Sprintf("%d-%d", c.First, c.Last)
}

// GatewayErrors are the statuses by which a gateway, or a server in front of an application, says that
// the application did not answer (RFC 9110 sections 15.6.3 to 15.6.5).
var GatewayErrors = Run{First: 502, Last: 504}

// Has reports whether code is in the run.
func (c Run) Has(code int) bool { return c.First <= code && code <= c.Last }

// Codes is a set of statuses from MinCode to MaxCode, one bit each.
type Codes [(MaxCode-MinCode)/64 + 1]uint64

// Has reports whether code is in the set.
func (s *Codes) Has(code int) bool {
	i := uint(code - MinCode)
	return i <= MaxCode-MinCode && s[i/64]>>(i%64)&1 != 0
}

// Add adds the codes of a run, which must be within MinCode to MaxCode.
func (s *Codes) Add(run Run) {
	for c := run.First; c <= run.Last; c++ {
		s[(c-MinCode)/64] |= 1 << uint((c-MinCode)%64)
	}
}

// Remove removes the codes of a run, which must be within MinCode to MaxCode.
func (s *Codes) Remove(run Run) {
	for c := run.First; c <= run.Last; c++ {
		s[(c-MinCode)/64] &^= 1 << uint((c-MinCode)%64)
	}
}

// With returns the codes in s or o.
func (s Codes) With(o *Codes) Codes {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// Without returns the codes in s and not in o.
func (s Codes) Without(o *Codes) Codes {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

// Empty reports whether the set is empty.
func (s Codes) Empty() bool { return s == Codes{} }

// Count returns the number of codes.
func (s *Codes) Count() int {
	n := 0
	for _, run := range s.Runs() {
		n += run.Last - run.First + 1
	}
	return n
}

// Runs returns the codes as maximal runs in order.
func (s *Codes) Runs() []Run {
	var all []Run
	for c := MinCode; c <= MaxCode; c++ {
		if !s.Has(c) {
			continue
		}
		if n := len(all); n > 0 && all[n-1].Last == c-1 {
			all[n-1].Last = c
		} else {
			all = append(all, Run{c, c})
		}
	}
	return all
}

// ParseCode parses exactly three digits; it returns -1 for anything else.
func ParseCode(s string) int {
	if len(s) != 3 {
		return -1
	}
	n := 0
	for i := 0; i < 3; i++ {
		if s[i] < '0' || s[i] > '9' {
			return -1
		}
		n = n*10 + int(s[i]-'0')
	}
	return n
}
