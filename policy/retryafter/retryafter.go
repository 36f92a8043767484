// Package retryafter reads how long the headers of a response ask the client to wait: Retry-After
// and similar headers, and those of rate limits. Headers reads a response; Rows lists the known
// headers, each with its source. Limits reads what is left of rate limits that are not exhausted.
// Package apierror reads error bodies.
package retryafter

import (
	"bytes"
	"strings"
	"time"
)

// Parse parses the value of a Retry-After header (RFC 9110 section 10.2.3): seconds, or a date in
// one of the three HTTP formats. Seconds may have a fraction, which is not in the RFC but which
// APIs send. A date is relative to date, the Date header of the same response, so that wrong clocks
// do no harm. If that is missing or invalid, it is relative to now, the local time. Upstreams
// truncate both to seconds, so the result is never earlier than what was asked.
//
// The result is never negative: a past date returns 0. A value too large for a Duration returns the
// largest one. Anything else returns false: signs, words, an empty value.
func Parse(value, date []byte, now time.Time) (time.Duration, bool) {
	value = trimSpace(value)
	if n, ok := parseNumber(value); ok {
		return n.times(time.Second), true
	}
	t, ok := parseDate(value)
	if !ok {
		return 0, false
	}
	return until(t, date, now), true
}

// dateFormats are those of RFC 9110 section 5.6.7: IMF-fixdate, RFC 850 and asctime.
var dateFormats = [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}

// maxDate is the longest HTTP date, in bytes.
const maxDate = len("Wednesday, 06-Nov-94 08:49:37 GMT")

func parseDate(value []byte) (time.Time, bool) {
	value = trimSpace(value)
	if len(value) > maxDate {
		return time.Time{}, false
	}
	// A leap second is read as the next second, which package time refuses.
	text, leap := string(value), time.Duration(0)
	if before, after, found := strings.Cut(text, ":60 "); found {
		text, leap = before+":59 "+after, time.Second
	}
	for _, format := range dateFormats {
		if t, err := time.Parse(format, text); err == nil {
			return t.Add(leap), true
		}
	}
	return time.Time{}, false
}

// until returns the time from date, or else from now, to t; 0 if t is past.
func until(t time.Time, date []byte, now time.Time) time.Duration {
	if sent, ok := parseDate(date); ok {
		now = sent
	}
	return max(t.Sub(now), 0)
}

// trimSpace removes optional white space (RFC 9110 section 5.6.3) at both ends.
func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t") }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
