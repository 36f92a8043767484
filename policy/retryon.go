package policy

import (
	"fmt"
	"strings"
)

// DefaultRetryOn is the retry-on setting where none is given.
const DefaultRetryOn = "5xx,429,connect-failure,reset,attempt-timeout"

// Statuses that a rule may name. 1xx are never the last word of an upstream,
// and RFC 9110 section 15 ends the valid ones at 599.
const (
	minCode = 200
	maxCode = 599
)

// RetryOn says which answers and which failures count as such. Make one with
// ParseRetryOn; the zero value lists nothing. It is not changed after it was
// made, so copies may be used by many goroutines at once.
type RetryOn struct {
	codes   codeSet
	never   codeSet // named with "!"; kept apart because it also beats a field
	connect bool
	reset   bool
	timeout bool
	grpc    grpcSet
	fields  []fieldRule
	names   []string // of fields, each once
}

// fieldRule is one retriable-header entry.
type fieldRule struct {
	name     string // lower case
	value    string
	anyValue bool
}

// matches reports whether a is a failure. It does not allocate.
func (r *RetryOn) matches(a *Attempt) bool {
	switch a.Cause {
	case CauseStatus:
		return r.hasCode(a.Status) || r.hasField(a) || r.grpc.has(a.GRPC)
	case CauseDial, CauseTLS, CauseIdleClose, CauseRefusedStream:
		return r.connect
	case CauseReset, CauseMalformed:
		return r.reset
	case CauseAttemptTimeout:
		return r.timeout
	}
	return false
}

// hasCode reports whether the status itself is listed.
func (r *RetryOn) hasCode(status int) bool { return r.codes.has(status) }

// hasField reports whether the response has a field that is listed.
func (r *RetryOn) hasField(a *Attempt) bool {
	if len(r.fields) == 0 || a.Header == nil || r.never.has(a.Status) {
		return false
	}
	for i := range r.fields {
		f := &r.fields[i]
		if v, ok := a.Header.Lookup(f.name); ok && (f.anyValue || string(v) == f.value) {
			return true
		}
	}
	return false
}

// Code reports whether a response with this status is a failure whatever its
// fields say.
func (r *RetryOn) Code(status int) bool { return r.hasCode(status) }

// Cause reports whether a failure of this cause is listed. For CauseStatus it
// reports whether any response can be a failure.
func (r *RetryOn) Cause(c Cause) bool {
	if c == CauseStatus {
		return !r.codes.empty() || len(r.fields) > 0 || r.grpc != 0
	}
	return r.matches(&Attempt{Cause: c})
}

// HeaderNames are the response headers that the setting needs, in lower case,
// each once; nil without a retriable-header entry, which is the usual case.
// The slice belongs to r and must not be changed.
func (r *RetryOn) HeaderNames() []string { return r.names }

// String is the shortest list that ParseRetryOn reads as the same setting:
// "5xx" where it applies, then further codes and ranges in order, exclusions,
// failures, gRPC statuses, fields.
func (r *RetryOn) String() string {
	items := r.codeItems(nil)
	for _, c := range conditions {
		if *c.flag(r) {
			items = append(items, c.name)
		}
	}
	items = r.grpc.items(items)
	for _, f := range r.fields {
		item := headerPrefix + f.name
		if !f.anyValue {
			item += "=" + f.value
		}
		items = append(items, item)
	}
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ",")
}

// fewExclusions is up to how many codes missing from 5xx are written as "!code".
const fewExclusions = 8

// codeItems appends the codes and exclusions to items.
func (r *RetryOn) codeItems(items []string) []string {
	rest, never := r.codes, r.never
	missing := serverErrors.without(&r.codes)
	named := missing.without(&r.never)
	if !r.codes.empty() && missing.count() <= fewExclusions && (len(r.fields) == 0 || named.empty()) {
		items = append(items, "5xx")
		rest = r.codes.without(&serverErrors)
		never = never.with(&missing)
	}
	for _, run := range rest.runs() {
		items = append(items, run.String())
	}
	for _, run := range never.runs() {
		items = append(items, "!"+run.String())
	}
	return items
}

// serverErrors is what "5xx" stands for: 500 to 599 without those that come
// out the same the next time: 501 Not Implemented, 505 HTTP Version Not
// Supported (RFC 9110 sections 15.6.2, 15.6.6) and 511 Network Authentication
// Required (RFC 6585 section 6).
var serverErrors = func() codeSet {
	var s codeSet
	s.add(codeRun{500, 599})
	for _, c := range []int{501, 505, 511} {
		s.remove(codeRun{c, c})
	}
	return s
}()

// codeRun is the codes from first to last, both included.
type codeRun struct{ first, last int }

func (c codeRun) String() string {
	if c.first == c.last {
		return fmt.Sprint(c.first)
	}
	return fmt.Sprintf("%d-%d", c.first, c.last)
}

// codeSet is a set of statuses minCode..maxCode, one bit each.
type codeSet [(maxCode-minCode)/64 + 1]uint64

func (s *codeSet) has(code int) bool {
	i := uint(code - minCode)
	return i <= maxCode-minCode && s[i/64]>>(i%64)&1 != 0
}

func (s *codeSet) add(run codeRun) {
	for c := run.first; c <= run.last; c++ {
		s[(c-minCode)/64] |= 1 << uint((c-minCode)%64)
	}
}

func (s *codeSet) remove(run codeRun) {
	for c := run.first; c <= run.last; c++ {
		s[(c-minCode)/64] &^= 1 << uint((c-minCode)%64)
	}
}

func (s codeSet) with(o *codeSet) codeSet {
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

func (s codeSet) without(o *codeSet) codeSet {
	for i := range s {
		s[i] &^= o[i]
	}
	return s
}

func (s codeSet) empty() bool { return s == codeSet{} }

func (s *codeSet) count() int {
	n := 0
	for _, run := range s.runs() {
		n += run.last - run.first + 1
	}
	return n
}

// runs are the codes as maximal runs in order.
func (s *codeSet) runs() []codeRun {
	var all []codeRun
	for c := minCode; c <= maxCode; c++ {
		if !s.has(c) {
			continue
		}
		if n := len(all); n > 0 && all[n-1].last == c-1 {
			all[n-1].last = c
		} else {
			all = append(all, codeRun{c, c})
		}
	}
	return all
}
