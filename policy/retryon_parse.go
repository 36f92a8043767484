package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/retryproxy/retryproxy/policy/status"
)

// Limits of a retry-on list: far more than anybody needs, but few enough to keep decisions cheap.
const (
	maxRetryOnItems  = 256
	maxRetryOnFields = 16
)

// rateLimited is the entry for a 429, and for a 403 that is a rate limit.
const rateLimited = "rate-limited"

const headerPrefix = "retriable-header:"

// conditions are the failures without a response, in the order of String.
var conditions = []struct {
	name string
	flag func(*RetryOn) *bool
}{
	{"connect-failure", func(r *RetryOn) *bool { return &r.connect }},
	{"reset", func(r *RetryOn) *bool { return &r.reset }},
	{"attempt-timeout", func(r *RetryOn) *bool { return &r.timeout }},
}

// envoyNames maps entries of Envoy's retry_on to our names. Envoy's reset-before-request is a
// connection that was lost before any byte was sent.
var envoyNames = map[string]string{
	"refused-stream": "connect-failure", "reset-before-request": "connect-failure",
	"retriable-4xx": "409", "envoy-ratelimited": "429",
	"cancelled": grpcPrefix + "cancelled", "deadline-exceeded": grpcPrefix + "deadline-exceeded", "internal": grpcPrefix + "internal",
	"resource-exhausted": grpcPrefix + "resource-exhausted", "unavailable": grpcPrefix + "unavailable",
}

// RetryOnWords returns the words of a retry-on list, without those that need a name or number. The slice
// belongs to the caller.
func RetryOnWords() []string {
	words := []string{"5xx", "gateway-error", rateLimited, "none"}
	for _, c := range conditions {
		words = append(words, c.name)
	}
	for _, name := range grpcNames[1:] {
		words = append(words, grpcPrefix+name)
	}
	return words
}

// retryOnParser collects the entries. It keeps explicit codes apart from groups until the end, so
// that their order does not matter.
type retryOnParser struct {
	r        RetryOn
	groups   status.Codes // from 5xx, gateway-error
	explicit status.Codes // from codes and ranges
	errs     []error
}

// ParseRetryOn parses a comma-separated list. Space around an entry is ignored, the order has no
// meaning, and an entry may occur twice.
//
//	5xx                           500 to 599 without 501, 505, 511
//	gateway-error                 502, 503, 504
//	rate-limited                  429, and a 403 with Retry-After or with a rate limit of which 0 is left
//	429                           this status, 200 to 599
//	500-504                       these statuses, both ends included
//	!503  !520-529                never these, whatever the groups, headers or X-Should-Retry say
//	connect-failure               no connection, failed TLS, closed idle connection, refused stream
//	reset                         connection lost after bytes were sent, malformed response
//	attempt-timeout               no response headers in time
//	grpc-unavailable              a gRPC status, by its name in lower case with hyphens
//	retriable-header:Name         the response has this header
//	retriable-header:Name=value   ... with exactly this value (case-sensitive)
//	none                          nothing; must be the only entry
//
// Envoy's names for these are accepted too, see envoyNames.
//
// A code that is both listed by number and excluded is an error. All errors are returned at once,
// joined.
func ParseRetryOn(s string) (RetryOn, error) {
	if strings.TrimSpace(s) == "none" {
		return RetryOn{}, nil
	}
	items := strings.Split(s, ",")
	if len(items) > maxRetryOnItems {
		return RetryOn{}, fmt.Errorf("%d entries; at most %d", len(items), maxRetryOnItems)
	}
	var p retryOnParser
	for _, item := range items {
		if err := p.item(strings.TrimSpace(item)); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	return p.finish()
}

// finish combines groups, codes and exclusions.
func (p *retryOnParser) finish() (RetryOn, error) {
	if both := p.explicit.Without(&p.r.never); both != p.explicit {
		clash := p.explicit.Without(&both)
		p.errs = append(p.errs, fmt.Errorf("%s is both listed and excluded", clash.Runs()[0]))
	}
	if len(p.r.fields) > maxRetryOnFields {
		p.errs = append(p.errs, fmt.Errorf("%d %s entries; at most %d", len(p.r.fields), headerPrefix, maxRetryOnFields))
	}
	if err := errors.Join(p.errs...); err != nil {
		return RetryOn{}, err
	}
	codes := p.groups.With(&p.explicit)
	p.r.codes = codes.Without(&p.r.never)
	if p.r.codes.Empty() && len(p.r.fields) == 0 {
		p.r.never = status.Codes{} // nothing is left to exclude
	}
	return p.r, nil
}

// item parses one entry.
func (p *retryOnParser) item(item string) error {
	if name, is := envoyNames[item]; is {
		item = name
	}
	switch item {
	case "":
		return errors.New(`an empty entry (for no retries at all say "none")`)
	case "none":
		return errors.New(`"none" must stand alone`)
	case "5xx":
		p.groups = p.groups.With(&serverErrors)
		return nil
	case "gateway-error":
		p.groups.Add(status.GatewayErrors)
		return nil
	}
	if item == rateLimited {
		p.groups.Add(status.Run{First: 429, Last: 429})
		p.r.limited = true
		return nil
	}
	for _, c := range conditions {
		if c.name == item {
			*c.flag(&p.r) = true
			return nil
		}
	}
	if name, ok := strings.CutPrefix(item, grpcPrefix); ok {
		if !p.r.grpc.add(name) {
			return fmt.Errorf("%q is not the status of a failed gRPC call; write %s and one of %s", item, grpcPrefix, grpcChoices())
		}
		return nil
	}
	if field, ok := strings.CutPrefix(item, headerPrefix); ok {
		return p.field(field)
	}
	return p.code(item)
}

// code parses a status or a range, excluded if it begins with "!".
func (p *retryOnParser) code(item string) error {
	digits, excluded := strings.CutPrefix(item, "!")
	run, err := parseRun(digits)
	if err != nil {
		return fmt.Errorf("%q %w", item, err)
	}
	if excluded {
		p.r.never.Add(run)
	} else {
		p.explicit.Add(run)
	}
	return nil
}

// field parses what follows "retriable-header:" in an entry.
func (p *retryOnParser) field(s string) error {
	name, value, hasValue := strings.Cut(s, "=")
	f := fieldRule{
		name:     strings.ToLower(strings.TrimSpace(name)),
		value:    strings.TrimSpace(value),
		anyValue: !hasValue,
	}
	if !isToken(f.name) {
		return fmt.Errorf("%q is not a header name (in %s)", name, headerPrefix+s)
	}
	if hasValue && !isFieldValue(f.value) {
		return fmt.Errorf("%q is not a header value (in %s)", f.value, headerPrefix+f.name)
	}
	if !slices.Contains(p.r.fields, f) {
		p.r.fields = append(p.r.fields, f)
	}
	if !slices.Contains(p.r.names, f.name) {
		p.r.names = append(p.r.names, f.name)
	}
	return nil
}

// isFieldValue reports whether s can be the value of a header: not empty, no control bytes (RFC
// 9110 section 5.5). s is already trimmed.
func isFieldValue(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

var errNotInRetryOn = errors.New("is not a failure in this list")

// parseRun parses "503" or "500-504".
func parseRun(s string) (status.Run, error) {
	first, last, isRange := strings.Cut(s, "-")
	if !isRange {
		last = first
	}
	run := status.Run{First: status.ParseCode(first), Last: status.ParseCode(last)}
	switch {
	case s == "4xx":
		return status.Run{}, errors.New("would mostly fail the same way again; list single statuses")
	case run.First < 0 || run.Last < 0:
		return status.Run{}, errNotInRetryOn
	case run.First < status.MinCode || run.Last > status.MaxCode:
		return status.Run{}, fmt.Errorf("is not within %d to %d", status.MinCode, status.MaxCode)
	case run.First > run.Last:
		return status.Run{}, errors.New("is a range whose end comes first")
	}
	return run, nil
}
