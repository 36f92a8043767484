package config

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/admission"
)

// Balance is which endpoint gets a request: least-requests, round-robin or hash:Name.
type Balance string

const (
	leastRequests = "least-requests"
	roundRobin    = "round-robin"
	hashOf        = "hash:"
)

func parseBalance(s string) (Balance, error) {
	if name, isHash := strings.CutPrefix(s, hashOf); s != leastRequests && s != roundRobin && !(isHash && isToken(name)) {
		return "", errForm
	}
	return Balance(s), nil
}

func (b Balance) proxy() proxy.Balance {
	name, isHash := strings.CutPrefix(string(b), hashOf)
	if !isHash {
		return proxy.Balance{RoundRobin: b == roundRobin}
	}
	return proxy.Balance{Header: name}
}

// HealthPath is the path of a health check, with an optional query. "" is off.
type HealthPath string

// maxHealthPath is the maximum length in bytes; a check must fit a small read buffer of any
// server.
const maxHealthPath = 2048

// parseHealthPath parses "off" or an origin-form target (RFC 9112 section 3.2.1).
func parseHealthPath(s string) (HealthPath, error) {
	switch {
	case strings.EqualFold(s, "off"):
		return "", nil
	case !strings.HasPrefix(s, "/"):
		return "", errors.New("it does not begin with /")
	case strings.HasPrefix(s, "//"):
		return "", errors.New("it begins with //")
	case strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' }) >= 0:
		return "", errors.New("it has a space, a # or a non-ASCII character; percent-encode it")
	case len(s) > maxHealthPath:
		return "", errors.New("it is longer than 2048 bytes")
	}
	return HealthPath(s), nil
}

// String is the inverse of parseHealthPath.
func (p HealthPath) String() string {
	if p == "" {
		return "off"
	}
	return string(p)
}

// RetryMethods is which methods may be retried after they were sent: a policy.MethodSet, any, or
// any-with-key.
type RetryMethods struct {
	policy.MethodSet        // empty with a word
	word             string // any or any-with-key; "" for a list
}

const (
	anyMethod        = "any"
	anyMethodWithKey = "any-with-key"
)

// Any reports whether requests of every method may be retried, with or without a key.
func (r RetryMethods) Any() bool { return r.word == anyMethod }

// AddKey reports whether requests get an Idempotency-Key, so that all may be retried.
func (r RetryMethods) AddKey() bool { return r.word == anyMethodWithKey }

func parseRetryMethods(s string) (RetryMethods, error) {
	if word := strings.ToLower(s); word == anyMethod || word == anyMethodWithKey {
		return RetryMethods{word: word}, nil
	}
	set, err := policy.ParseMethods(s)
	return RetryMethods{MethodSet: set}, err
}

// String is the inverse of parseRetryMethods.
func (r RetryMethods) String() string {
	if r.word != "" {
		return r.word
	}
	return r.MethodSet.String()
}

// ErrorCodes is an apierror.List.
type ErrorCodes struct {
	list *apierror.List
	text string
}

func parseErrorCodes(s string) (ErrorCodes, error) {
	list, err := apierror.ParseList(s)
	return ErrorCodes{list, s}, err
}

// String is the inverse of parseErrorCodes.
func (e ErrorCodes) String() string { return e.text }

// ConcurrencyLimit is the maximum of requests in flight. Fixed is 0 unless the mode is fixed.
type ConcurrencyLimit struct {
	Mode  breaker.ConcurrencyLimitMode
	Fixed int
}

// parseConcurrencyLimit parses "adaptive", "off" or a number.
func parseConcurrencyLimit(s string) (ConcurrencyLimit, error) {
	switch strings.ToLower(s) {
	case "adaptive":
		return ConcurrencyLimit{Mode: breaker.ConcurrencyLimitAdaptive}, nil
	case "off":
		return ConcurrencyLimit{Mode: breaker.ConcurrencyLimitOff}, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil {
		return ConcurrencyLimit{}, errForm
	}
	l := ConcurrencyLimit{Mode: breaker.ConcurrencyLimitFixed, Fixed: int(n)}
	return l, breaker.Options{ConcurrencyLimit: l.Mode, FixedLimit: l.Fixed}.Validate()
}

// String is the inverse of parseConcurrencyLimit.
func (l ConcurrencyLimit) String() string {
	switch l.Mode {
	case breaker.ConcurrencyLimitAdaptive:
		return "adaptive"
	case breaker.ConcurrencyLimitOff:
		return "off"
	}
	return strconv.Itoa(l.Fixed)
}

// RateLimit is a ratelimit.Rate, or auto for learned limits.
type RateLimit struct {
	ratelimit.Rate
	Auto bool
}

// parseRateLimit parses off, auto, or text with ratelimit.ParseRate.
func parseRateLimit(s string) (RateLimit, error) {
	if s == autoWord || s == "off" {
		return RateLimit{Auto: s == autoWord}, nil
	}
	rate, err := ratelimit.ParseRate(s)
	return RateLimit{Rate: rate}, err
}

// Limited reports whether there is a limit, configured or learned.
func (q RateLimit) Limited() bool { return q.Auto || q.Rate.Limited() }

// String is the inverse of parseRateLimit.
func (q RateLimit) String() string {
	if q.Auto {
		return autoWord
	}
	return q.Rate.String()
}

// parseTokenLimit parses off, or text with ratelimit.ParseTokenRate.
func parseTokenLimit(s string) (ratelimit.Rate, error) {
	if s == "off" {
		return ratelimit.Rate{}, nil
	}
	return ratelimit.ParseTokenRate(s)
}

// RateLimitKey is which requests share a rate limit. Its own word is upstream: all requests to the
// upstream.
type RateLimitKey struct{ admission.Sharing }

// PauseKey is which requests share the pause that a 429 asks for. Its own word is none: each request
// pauses for itself.
type PauseKey struct{ admission.Sharing }

const (
	headerKey = "header:"
	modelKey  = "json:model"
)

func parseRateLimitKey(s string) (RateLimitKey, error) {
	key, err := parseSharing(s, "upstream")
	return RateLimitKey{key}, err
}

func parsePauseKey(s string) (PauseKey, error) {
	key, err := parseSharing(s, "none")
	return PauseKey{key}, err
}

// parseSharing parses the setting's own word, "route", "header:Name", "json:model" or
// "header:Name,json:model".
func parseSharing(s, word string) (by admission.Sharing, err error) {
	switch name, isHeader := strings.CutPrefix(s, headerKey); {
	case s == word:
	case s == "route":
		by.Route = true
	case s == modelKey:
		by.Model = true
	default:
		by.Header, by.Model = strings.CutSuffix(name, ","+modelKey)
		if !isHeader || !isToken(by.Header) {
			return admission.Sharing{}, errForm
		}
	}
	return by, nil
}

// String is the inverse of parseRateLimitKey.
func (k RateLimitKey) String() string { return cmp.Or(k.Sharing.String(), "upstream") }

// String is the inverse of parsePauseKey.
func (k PauseKey) String() string { return cmp.Or(k.Sharing.String(), "none") }
