package retryafter

import (
	"bytes"
	"time"
)

// parseOrder parses how long to wait, as APIs and middleboxes send it: like Parse, a duration with its
// unit ("30s", "30 seconds"), a time as in a reset, or a list of these, of which the longest counts.
// unit is that of a number without one.
func parseOrder(value []byte, unit time.Duration, date []byte, now time.Time) (time.Duration, bool) {
	value = tidy(value)
	if d, ok := parseOneOrder(value, unit, date, now); ok {
		return d, true
	}
	if n, rest, ok := cutDigitsGrouped(value); ok && len(rest) == 0 { // 1,000
		return n.times(unit), true
	}
	longest, found := time.Duration(0), false
	for rest := value; len(rest) > 0; {
		var part []byte
		part, rest = cutListed(rest)
		d, ok := parseOneOrder(tidy(part), unit, date, now)
		if !ok {
			return 0, false
		}
		longest, found = max(longest, d), true
	}
	return longest, found
}

// cutListed cuts b at its first comma that does not follow the day of a date.
func cutListed(b []byte) (part, rest []byte) {
	from := 0
	if len(b) > 0 && isLetter(b[0]) {
		from = bytes.IndexByte(b, ',') + 1
	}
	if i := bytes.IndexByte(b[from:], ','); i >= 0 {
		return b[:from+i], b[from+i+1:]
	}
	return b, nil
}

func parseOneOrder(value []byte, unit time.Duration, date []byte, now time.Time) (time.Duration, bool) {
	if n, ok := parseNumber(value); ok {
		if unit == time.Second && n.whole >= epochFrom {
			if d, ok := n.reset(date, now); ok {
				return d, true
			}
		}
		return n.times(unit), true
	}
	if d, rest, ok := CutDuration(value, true); ok && len(rest) == 0 {
		return d, true
	}
	if d, ok := parseISODuration(value); ok {
		return d, true
	}
	if t, ok := parseOtherTime(value); ok {
		return until(t, date, now), true
	}
	return parseReset(value, date, now)
}

// otherTimes are formats of times that neither HTTP nor RFC 3339 has: an offset in a date, or no day of the
// week (RFC 5322), an offset without a colon (Chutes), UTC as a word, and Date.toString of JavaScript
// (lemlist, "Rate limits"), whose name of the zone is cut off.
var otherTimes = [...]string{
	"Mon, 2 Jan 2006 15:04:05 -0700", "Mon, 2 Jan 2006 15:04:05 UTC", "Mon, 2 Jan 2006 15:04:05 GMT",
	"2 Jan 2006 15:04:05 GMT", "2 Jan 2006 15:04:05 UTC", "2 Jan 2006 15:04:05 -0700", "Mon Jan _2 2006 15:04:05 GMT-0700",
	"2006-01-02T15:04:05Z0700", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04:05 UTC", "2006-01-02 15:04 UTC", "2006-01-02 at 15:04 UTC",
}

func parseOtherTime(value []byte) (time.Time, bool) {
	if !StartsDate(value) {
		return time.Time{}, false
	}
	if zone := bytes.Index(value, []byte(" (")); zone > 0 {
		value = value[:zone]
	}
	for _, format := range otherTimes {
		if t, err := time.Parse(format, string(value)); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// tidy removes what middleboxes put around a value: space, quotes, parameters, and copies of the value
// in a list.
func tidy(value []byte) []byte {
	value, _, _ = bytes.Cut(value, []byte(";"))
	value = trimSpace(value)
	if n := len(value); n >= 2 && value[0] == '"' && value[n-1] == '"' {
		value = trimSpace(value[1 : n-1])
	}
	first, rest, listed := bytes.Cut(value, []byte(","))
	for more := listed; more; {
		var next []byte
		next, rest, more = bytes.Cut(rest, []byte(","))
		if !bytes.Equal(trimSpace(next), trimSpace(first)) {
			return value
		}
	}
	return trimSpace(first)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
