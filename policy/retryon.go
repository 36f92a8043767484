package policy

import (
	"strings"

	"github.com/retryproxy/retryproxy/policy/status"
)

// RetryOn is which responses and failures are retried. Make one with ParseRetryOn; the zero value
// lists nothing. It does not change afterwards, so copies are safe for concurrent use.
type RetryOn struct {
	codes   status.Codes
	never   status.Codes // excluded with "!"; kept apart because it also overrides a header and X-Should-Retry
	connect bool
	reset   bool
	timeout bool
	limited bool // a 403 that is a rate limit counts as a 429
	grpc    grpcSet
	fields  []fieldRule
	names   []string // of headers, each once
}

// fieldRule is one retriable-header entry.
type fieldRule struct {
	name     string // lower case
	value    string
	anyValue bool
}

// matches reports whether a is a failure. It does not allocate.
func (r *RetryOn) matches(res *Result) bool {
	switch res.Cause {
	case CauseStatus:
		return r.hasCode(res.Status) || r.hasField(res) || r.grpc.has(res.GRPC)
	case CauseDial, CauseTLS, CauseUntrusted, CauseIdleClose, CauseRefusedStream:
		return r.connect
	case CauseReset, CauseMalformed, CauseHeadersTooLarge:
		return r.reset
	case CauseAttemptTimeout:
		return r.timeout
	}
	return false
}

// hasCode reports whether the status is listed.
func (r *RetryOn) hasCode(status int) bool { return r.codes.Has(status) }

// hasField reports whether the response has a listed header.
func (r *RetryOn) hasField(res *Result) bool {
	if len(r.fields) == 0 || res.Header == nil || r.never.Has(res.Status) {
		return false
	}
	for i := range r.fields {
		f := &r.fields[i]
		if v, ok := res.Header.Lookup(f.name); ok && (f.anyValue || string(v) == f.value) {
			return true
		}
	}
	return false
}

// yields reports whether a is a failure only because its response asks for a retry. A status that
// is excluded with "!" never is, nor is any status if the setting lists none.
func (r *RetryOn) yields(res *Result) bool {
	return res.Advice == AdvisesRetry && res.Status >= 400 && !r.codes.Empty() && !r.never.Has(res.Status)
}

// CountsAs returns the status by which a response is judged: its own, or 429 for a 403 that is a rate
// limit, if the setting says so. limits reports whether the response says that a rate limit is
// exhausted; it is called only for a 403. GitHub sends 403 for both, a refusal and a rate limit
// (GitHub, "Rate limits for the REST API").
func (r *RetryOn) CountsAs(status int, limits func() bool) int {
	if status == 403 && r.limited && !r.never.Has(403) && limits() {
		return 429
	}
	return status
}

// Code reports whether a response with this status is a failure whatever its headers.
func (r *RetryOn) Code(status int) bool { return r.hasCode(status) }

// Cause reports whether a failure of this cause is listed. For CauseStatus it
// reports whether any response can be a failure.
func (r *RetryOn) Cause(c Cause) bool {
	if c == CauseStatus {
		return !r.codes.Empty() || len(r.fields) > 0 || r.grpc != 0
	}
	return r.matches(&Result{Cause: c})
}

// HeaderNames returns the response headers that the setting needs, in lower case, each once. It is
// nil without a retriable-header entry, which is the usual case. The slice belongs to r and must
// not be changed.
func (r *RetryOn) HeaderNames() []string { return r.names }

// String returns the shortest list that ParseRetryOn parses as the same setting: "5xx" if it
// applies, then further codes and ranges in order, exclusions, failures, gRPC statuses and headers.
func (r *RetryOn) String() string {
	items := r.codeItems(nil)
	for _, c := range conditions {
		if *c.flag(r) {
			items = append(items, c.name)
		}
	}
	if r.limited {
		items = append(items, rateLimited)
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

// fewExclusions is how many codes missing from 5xx are written as "!code" at most.
const fewExclusions = 8

// codeItems appends the codes and exclusions to items.
func (r *RetryOn) codeItems(items []string) []string {
	rest, never := r.codes, r.never
	missing := serverErrors.Without(&r.codes)
	named := missing.Without(&r.never)
	if !r.codes.Empty() && missing.Count() <= fewExclusions && named.Empty() {
		items = append(items, "5xx")
		rest = r.codes.Without(&serverErrors)
		never = never.With(&missing)
	}
	if r.limited {
		rest.Remove(status.Run{First: 429, Last: 429})
	}
	for _, run := range rest.Runs() {
		items = append(items, run.String())
	}
	for _, run := range never.Runs() {
		items = append(items, "!"+run.String())
	}
	return items
}

// serverErrors is what "5xx" stands for: 500 to 599 without those that a retry does not change: 501
// Not Implemented, 505 HTTP Version Not Supported (RFC 9110 sections 15.6.2, 15.6.6) and 511
// Network Authentication Required (RFC 6585 section 6).
var serverErrors = func() status.Codes {
	var s status.Codes
	s.Add(status.Run{First: 500, Last: 599})
	for _, c := range []int{501, 505, 511} {
		s.Remove(status.Run{First: c, Last: c})
	}
	return s
}()

// NoFailures lists the statuses of s that are no failures, so that listing them has no effect.
func (r *RetryOn) NoFailures(s status.Set) []string {
	var items []string
	beyond := s.Codes.Without(&r.codes)
	for _, run := range beyond.Runs() {
		items = append(items, run.String())
	}
	return items
}
