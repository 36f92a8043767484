package retryafter

import (
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
// It rounds up to a nanosecond and clamps to the largest Duration. It reads at most 64 bytes and
// does not allocate.
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

// parseMilliseconds parses a value in milliseconds.
func parseMilliseconds(value []byte) (time.Duration, bool) {
	n, ok := parseNumber(trimSpace(value))
	if !ok {
		return 0, false
	}
	return n.times(time.Millisecond), true
}

// A reset without a unit is either seconds from now, or a time in seconds or milliseconds since
// 1970. Nothing but its size distinguishes them: epochFrom was in September 2001, and 31 years as
// seconds from now. The same time in milliseconds is epochFrom * 1000. Values between, from the
// year 5138 on, are ignored, and so are times beyond that year.
const (
	epochFrom = 1_000_000_000
	epochEnd  = 100_000_000_000
)

// parseReset parses when a rate limit is replenished: a duration, seconds from now, or a time in
// seconds or milliseconds since 1970, in RFC 3339, or as an HTTP date. A time is relative to date,
// or else to now; see Parse. It is never rounded down.
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
	if sec, nano, ok := parseRFC3339(value); ok {
		return until(sec, nano, date, now), true
	}
	if sec, ok := parseDate(value, now); ok {
		return until(sec, 0, date, now), true
	}
	return 0, false
}

// reset returns the wait for a number without a unit.
func (n decimal) reset(date []byte, now time.Time) (time.Duration, bool) {
	switch {
	case n.whole < epochFrom:
		return n.times(time.Second), true
	case n.whole < epochEnd:
		return until(n.whole, time.Duration(n.fraction), date, now), true
	case n.whole >= epochFrom*1000 && n.whole < epochEnd*1000:
		nano := time.Duration(n.whole%1000)*time.Millisecond + decimal{fraction: n.fraction}.times(time.Millisecond)
		return until(n.whole/1000, nano, date, now), true
	}
	return 0, false
}

// until returns the time from date, or else now, to sec and nano since 1970; 0 if that is past.
// nano is at most a second.
func until(sec int64, nano time.Duration, date []byte, now time.Time) time.Duration {
	sent, ok := parseDate(trimSpace(date), now)
	switch {
	case !ok:
		return max(time.Unix(sec, int64(nano)).Sub(now), 0)
	case sec < sent:
		return 0
	}
	d := secondsToDuration(sec - sent)
	return d + min(nano, backoff.Forever-d)
}

// parseRFC3339 parses a time such as 2026-03-01T12:00:30Z, 2026-03-01T12:00:30.5+01:00 (RFC 3339
// section 5.6). nano is rounded up and may be a whole second. The offset is at most a day.
func parseRFC3339(b []byte) (sec int64, nano time.Duration, ok bool) {
	const clockAt = len("2026-03-01T")
	if len(b) < clockAt+clockLen+1 || b[4] != '-' || b[7] != '-' || b[10]|0x20 != 't' && b[10] != ' ' {
		return 0, 0, false
	}
	sec, ok = unixOf(true, number(b[:4]), number(b[5:7])-1, number(b[8:10]), b[clockAt:clockAt+clockLen])
	if !ok || number(b[5:7]) > 12 {
		return 0, 0, false
	}
	zone := b[clockAt+clockLen:]
	if zone[0] == '.' {
		end := 1
		for end < len(zone) && isDigit(zone[end]) {
			end++
		}
		if nano, ok = parseFraction(zone[1:end]); !ok {
			return 0, 0, false
		}
		zone = zone[end:]
	}
	offset, ok := parseZone(zone)
	return sec - offset, nano, ok
}

// parseZone parses Z, or an offset such as +01:00, and returns seconds east of UTC.
func parseZone(b []byte) (int64, bool) {
	if len(b) == 1 {
		return 0, b[0]|0x20 == 'z'
	}
	if len(b) != len("+01:00") || b[3] != ':' || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	h, m := number(b[1:3]), number(b[4:6])
	if h < 0 || h > 23 || m < 0 || m > 59 {
		return 0, false
	}
	east := int64(h*3600 + m*60)
	if b[0] == '-' {
		east = -east
	}
	return east, true
}
