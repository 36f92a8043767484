package retryafter

import (
	"bytes"
	"math"
	"math/bits"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// units are the units of a duration. Longer names precede their prefixes.
var units = [...]struct {
	name   string
	length time.Duration
}{
	{"ms", time.Millisecond}, {"us", time.Microsecond}, {"µs", time.Microsecond}, {"ns", 1},
	{"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// ParseDuration parses a duration as Go prints it, which OpenAI, Groq and Google send: 6m0s, 4.2s,
// 88ms, and with days: 1d2h. Each number has a unit, in any order, without white space or a sign.
// It rounds up to a nanosecond and clamps to the largest Duration. It reads at most 64 bytes.
func ParseDuration(b []byte) (sum time.Duration, ok bool) {
	if len(b) == 0 || len(b) > maxValue {
		return 0, false
	}
	for len(b) > 0 {
		n, after, ok := cutNumber(b)
		if !ok {
			return 0, false
		}
		length, after := cutUnit(after)
		if length == 0 {
			return 0, false
		}
		d := n.times(length)
		sum += min(d, backoff.Forever-sum)
		b = after
	}
	return sum, true
}

// cutUnit parses the unit at the start of b; 0 if there is none.
func cutUnit(b []byte) (time.Duration, []byte) {
	for i := range units {
		if n := len(units[i].name); len(b) >= n && string(b[:n]) == units[i].name {
			return units[i].length, b[n:]
		}
	}
	return 0, b
}

// decimal is a number that is not negative. Both parts are rounded up.
type decimal struct {
	whole    int64 // at most MaxInt64 / 100
	fraction int64 // in billionths; 1e9 after rounding up
}

const billion = 1_000_000_000

// cutNumber parses the number at the start of b.
func cutNumber(b []byte) (n decimal, after []byte, ok bool) {
	i := 0
	for ; i < len(b) && isDigit(b[i]); i++ {
		n.whole = min(n.whole*10+int64(b[i]-'0'), math.MaxInt64/100)
	}
	if i == 0 || i == len(b) || b[i] != '.' {
		return n, b[i:], i > 0
	}
	begin, finer := i+1, false
	scale := int64(billion)
	for i++; i < len(b) && isDigit(b[i]); i++ {
		scale /= 10
		n.fraction += int64(b[i]-'0') * scale
		finer = finer || scale == 0 && b[i] != '0'
	}
	if finer {
		n.fraction++
	}
	return n, b[i:], i > begin
}

// times returns n units, rounded up and clamped to Forever.
func (n decimal) times(unit time.Duration) time.Duration {
	if n.whole > int64(backoff.Forever/unit) {
		return backoff.Forever
	}
	hi, lo := bits.Mul64(uint64(n.fraction), uint64(unit))
	lo, carry := bits.Add64(lo, billion-1, 0)
	part, _ := bits.Div64(hi+carry, lo, billion) // at most unit, because fraction is at most 1e9
	whole := time.Duration(n.whole) * unit
	return whole + min(time.Duration(part), backoff.Forever-whole)
}

// parseNumber parses a value that is only a number.
func parseNumber(b []byte) (decimal, bool) {
	n, after, ok := cutNumber(b)
	return n, ok && len(after) == 0
}

// A reset without a unit is either seconds from now, or a time in seconds or milliseconds since
// 1970. Nothing but its size distinguishes them: epochFrom was in September 2001, and 31 years as
// seconds from now. The same time in milliseconds is epochFrom * 1000, and in microseconds the same again.
// Values between, from the year 5138 on, are ignored, and so are times beyond that year.
const (
	epochFrom = 1_000_000_000
	epochEnd  = 100_000_000_000
)

// parseReset parses when a rate limit is replenished: a duration, seconds from now, or a time in
// seconds or milliseconds since 1970, in RFC 3339, or as an HTTP date. A time is relative to date,
// or else to now; see Parse.
func parseReset(value, date []byte, now time.Time) (time.Duration, bool) {
	value = trimSpace(value)
	if len(value) == 0 || len(value) > maxValue {
		return 0, false
	}
	if n, ok := parseNumber(value); ok {
		return n.reset(date, now)
	}
	if d, ok := ParseDuration(value); ok {
		return d, true
	}
	t, ok := parseRFC3339(value)
	if !ok {
		if t, ok = parseDate(value); !ok {
			return 0, false
		}
	}
	return until(t, date, now), true
}

// parseRFC3339 parses a time such as 2026-03-01T12:00:30.5+01:00. The letters may be in lower case,
// and a space may stand for the T (RFC 3339 section 5.6). A leap second is read as in parseDate.
func parseRFC3339(value []byte) (time.Time, bool) {
	const dayLen, minuteLen = len("2026-03-01"), len("2026-03-01T12:00")
	text := bytes.ToUpper(value)
	if len(text) > dayLen && text[dayLen] == ' ' {
		text[dayLen] = 'T'
	}
	leap := time.Duration(0)
	if len(text) > minuteLen && bytes.HasPrefix(text[minuteLen:], []byte(":60")) {
		copy(text[minuteLen:], ":59")
		leap = time.Second
	}
	t, err := time.Parse(time.RFC3339, string(text))
	return t.Add(leap), err == nil && bytes.IndexByte(text, ',') < 0
}

// reset returns the wait for a number without a unit.
func (n decimal) reset(date []byte, now time.Time) (time.Duration, bool) {
	switch {
	case n.whole < epochFrom:
		return n.times(time.Second), true
	case n.whole < epochEnd:
		return until(time.Unix(n.whole, n.fraction), date, now), true
	case n.whole >= epochFrom*1000 && n.whole < epochEnd*1000:
		return until(time.UnixMilli(n.whole).Add(decimal{fraction: n.fraction}.times(time.Millisecond)), date, now), true
	case n.whole >= epochFrom*1_000_000 && n.whole < epochFrom*10_000_000:
		return until(time.UnixMicro(n.whole+1), date, now), true
	}
	return 0, false
}

// ParseReset parses when a rate limit is replenished, or how long to wait for it, as a member of an
// error body states it: a duration (Go's, ISO 8601's or in words), a number of units, or a time, also as
// a number since 1970. A time is relative to date, or else to now; see Parse. It reads at most 64 bytes.
func ParseReset(value []byte, unit time.Duration, date []byte, now time.Time) (time.Duration, bool) {
	if len(value) > maxValue {
		return 0, false
	}
	return parseOrder(value, unit, date, now)
}

// parseISODuration parses a duration of ISO 8601 without years and months, such as PT1M30S.
func parseISODuration(b []byte) (sum time.Duration, ok bool) {
	rest, found := bytes.CutPrefix(b, []byte("P"))
	if !found {
		return 0, false
	}
	timed := false
	for len(rest) > 0 {
		if rest[0] == 'T' && !timed {
			rest, timed = rest[1:], true
			continue
		}
		n, after, isNumber := cutNumber(rest)
		if !isNumber || len(after) == 0 {
			return 0, false
		}
		length := isoUnit(after[0], timed)
		if length == 0 {
			return 0, false
		}
		sum, rest, ok = sum+min(n.times(length), backoff.Forever-sum), after[1:], true
	}
	return sum, ok
}

// isoUnit returns the length of a unit of ISO 8601; 0 for another. timed means that it follows the T.
func isoUnit(c byte, timed bool) time.Duration {
	switch {
	case timed && c == 'S':
		return time.Second
	case timed && c == 'M':
		return time.Minute
	case timed && c == 'H':
		return time.Hour
	case !timed && c == 'D':
		return 24 * time.Hour
	case !timed && c == 'W':
		return 7 * 24 * time.Hour
	}
	return 0
}
