// Package retryafter reads how long the headers of a response ask the client to wait: Retry-After
// and similar headers, and those of rate limits. Headers reads a response; Rows lists the known
// headers, each with its source. Package apierror reads error bodies.
package retryafter

import (
	"math"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// Parse parses the value of a Retry-After header (RFC 9110 section 10.2.3): seconds, or a date in
// one of the three HTTP formats. Seconds may have a fraction, which is not in the RFC but which
// APIs send. A date is relative to date, the Date header of the same response, so that wrong clocks
// do no harm. If that is missing or invalid, it is relative to now, the local time. Upstreams
// truncate both to seconds, so the result is never earlier than what was asked.
//
// The result is never negative: a past date returns 0. A value too large for a Duration returns the
// largest one. Anything else returns false: signs, words, an empty value. It does not allocate.
func Parse(value, date []byte, now time.Time) (time.Duration, bool) {
	value = trimSpace(value)
	if len(value) > 0 && isDigit(value[0]) {
		return parseSeconds(value)
	}
	until, ok := parseDate(value, now)
	if !ok {
		return 0, false
	}
	if sent, ok := parseDate(trimSpace(date), now); ok {
		return secondsToDuration(until - sent), true
	}
	return max(time.Unix(until, 0).Sub(now), 0), true
}

// parseSeconds parses delay-seconds = 1*DIGIT, with or without a fraction.
func parseSeconds(b []byte) (time.Duration, bool) {
	var n int64
	for i, c := range b {
		if c == '.' {
			fraction, ok := parseFraction(b[i+1:])
			if !ok {
				return 0, false
			}
			whole := secondsToDuration(n)
			return whole + min(fraction, backoff.Forever-whole), true
		}
		if !isDigit(c) {
			return 0, false
		}
		n = min(n*10+int64(c-'0'), math.MaxInt64/100)
	}
	return secondsToDuration(n), true
}

// parseFraction parses the digits after the point of a number of seconds. It rounds up to a
// nanosecond, so the wait is never shorter than what was asked.
func parseFraction(b []byte) (d time.Duration, ok bool) {
	unit, finer := time.Second/10, false
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		d += time.Duration(c-'0') * unit
		finer = finer || unit == 0 && c != '0'
		unit /= 10
	}
	if finer {
		d++
	}
	return d, len(b) > 0
}

// secondsToDuration clamps to [0, Forever].
func secondsToDuration(s int64) time.Duration {
	switch {
	case s <= 0:
		return 0
	case s > int64(backoff.Forever/time.Second):
		return backoff.Forever
	}
	return time.Duration(s) * time.Second
}

// trimSpace removes optional white space (RFC 9110 section 5.6.3) at both ends.
func trimSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
