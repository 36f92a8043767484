package retryafter

import (
	"bytes"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// maxNumber limits the bytes of a number in a text.
const maxNumber = 62

// minUncut is how many bytes must follow in a text that was cut off, so that no duration is cut off.
const minUncut = 128

// CutDuration parses the duration at the start of a text for humans: 6.1s, 1m30s, 88ms, "6 seconds",
// "1 minute and 30 seconds", "1,000 seconds", "an hour", "5-hour", 30秒, PT30S, and 1:02:03 as a time span.
// Of "2-3 minutes" it returns the longer. Each unit is a separate word and smaller than the one before. It
// returns what follows. If whole is false, b was cut off, so a duration at its end may be incomplete and
// does not count.
func CutDuration(b []byte, whole bool) (sum time.Duration, rest []byte, ok bool) {
	last, rest := backoff.Forever, b
	for next := b; ; next = cutJoint(rest) {
		if !whole && len(next) < minUncut {
			return 0, b, false
		}
		if d, after, span := cutSpan(next); span && !ok {
			return d, after, true
		}
		if d, after, iso := cutISODuration(next); iso && !ok {
			return d, after, true
		}
		n, after, found := cutQuantity(next)
		if !found {
			return sum, rest, ok
		}
		if len(after) > 1 && (after[0] == ' ' || after[0] == '-' && isLetter(after[1])) {
			after = after[1:]
		}
		length, after := cutWord(after)
		if length == 0 || length >= last {
			return sum, rest, ok
		}
		sum, last, rest, ok = sum+min(n.times(length), backoff.Forever-sum), length, after, true
	}
}

// cutJoint skips what may separate two parts of a duration.
func cutJoint(b []byte) []byte {
	for _, between := range [...]string{", and ", ", ", " and ", " "} {
		if after, found := bytes.CutPrefix(b, []byte(between)); found {
			return after
		}
	}
	return b
}

// cutISODuration parses the duration of ISO 8601 at the start of b, with a time: PT1M30S.
func cutISODuration(b []byte) (d time.Duration, after []byte, ok bool) {
	if len(b) < 4 || b[0] != 'P' {
		return 0, b, false
	}
	n := 1
	for n < len(b) && (isDigit(b[n]) || b[n] == 'T' || b[n] == '.' && n+1 < len(b) && isDigit(b[n+1]) || isoUnit(b[n], false)+isoUnit(b[n], true) > 0) {
		n++
	}
	if n < len(b) && isLetter(b[n]) {
		return 0, b, false
	}
	d, ok = parseISODuration(b[:n])
	return d, b[n:], ok
}

// numbers are the words for numbers, and the least that they mean.
var numbers = [...]struct {
	word string // in lower case
	n    int64
}{
	{"a few ", 2}, {"a couple of ", 2}, {"few ", 2}, {"several ", 2}, {"a ", 1}, {"an ", 1}, {"one ", 1}, {"two ", 2}, {"three ", 3}, {"four ", 4}, {"five ", 5}, {"six ", 6},
	{"seven ", 7}, {"eight ", 8}, {"nine ", 9}, {"ten ", 10}, {"twelve ", 12}, {"fifteen ", 15}, {"twenty ", 20}, {"thirty ", 30}, {"forty ", 40}, {"forty-five ", 45}, {"fifty ", 50}, {"sixty ", 60}, {"ninety ", 90},
}

// StartsNumber reports whether b starts with a word for a number.
func StartsNumber(b []byte) bool {
	_, _, ok := cutNumberWord(b)
	return ok
}

// cutNumberWord parses the word for a number at the start of b, and leaves the space after it.
func cutNumberWord(b []byte) (n int64, after []byte, ok bool) {
	if len(b) == 0 || !isLetter(b[0]) {
		return 0, b, false
	}
	for i := range numbers {
		if w := numbers[i].word; len(b) >= len(w) && b[0]|0x20 == w[0] && equalName(b[:len(w)], []byte(w)) {
			return numbers[i].n, b[len(w)-1:], true
		}
	}
	return 0, b, false
}

// ranges are what separates the two numbers of a range.
var ranges = [...]string{"-", "–", "—", " - ", " to ", "~"}

// cutQuantity parses the number at the start of b: digits, a word, or a range, of which the last counts.
func cutQuantity(b []byte) (n decimal, after []byte, ok bool) {
	if word, after, found := cutNumberWord(b); found {
		return decimal{whole: word}, after, true
	}
	if n, after, ok = cutDigitsGrouped(b); !ok {
		return n, after, false
	}
	for _, between := range ranges {
		rest, found := bytes.CutPrefix(after, []byte(between))
		if !found || len(rest) == 0 || !isDigit(rest[0]) {
			continue
		}
		if last, end, valid := cutDigitsGrouped(rest); valid {
			return last, end, true
		}
	}
	return n, after, true
}

// cutDigitsGrouped parses the number at the start of b. Digits may be in groups of three.
func cutDigitsGrouped(b []byte) (n decimal, after []byte, ok bool) {
	var digits [maxNumber]byte
	size, at := 0, 0
	for at < len(b) && size < maxNumber {
		switch {
		case isDigit(b[at]), b[at] == '.' && at > 0 && at+1 < len(b) && isDigit(b[at+1]):
			digits[size] = b[at]
			size++
		case b[at] == ',' && isGroup(b[at+1:]) && size > 0:
		default:
			n, rest, ok := cutNumber(digits[:size])
			return n, b[at:], ok && len(rest) == 0
		}
		at++
	}
	n, rest, ok := cutNumber(digits[:size])
	return n, b[at:], ok && len(rest) == 0 && at == len(b)
}

// isGroup reports whether b starts with exactly three digits.
func isGroup(b []byte) bool {
	return len(b) >= 3 && isDigit(b[0]) && isDigit(b[1]) && isDigit(b[2]) && (len(b) == 3 || !isDigit(b[3]))
}

// cutSpan parses a time span of .NET at the start of b, which Azure API Management sends: hh:mm:ss,
// with days as in 15.02:03:04.
func cutSpan(b []byte) (d time.Duration, after []byte, ok bool) {
	day, rest, ok := cutDigits(b, 4)
	if !ok {
		return 0, b, false
	}
	hour := day
	if len(rest) > 0 && rest[0] == '.' {
		if hour, rest, ok = cutDigits(rest[1:], 2); !ok {
			return 0, b, false
		}
	} else {
		day = 0
	}
	var parts [2]time.Duration
	for i := range parts {
		if len(rest) == 0 || rest[0] != ':' {
			return 0, b, false
		}
		if parts[i], rest, ok = cutDigits(rest[1:], 2); !ok {
			return 0, b, false
		}
	}
	return day*24*time.Hour + hour*time.Hour + parts[0]*time.Minute + parts[1]*time.Second, rest, true
}

// cutDigits parses up to most digits at the start of b.
func cutDigits(b []byte, most int) (n time.Duration, after []byte, ok bool) {
	i := 0
	for ; i < len(b) && i < most && isDigit(b[i]); i++ {
		n = n*10 + time.Duration(b[i]-'0')
	}
	return n, b[i:], i > 0 && (i == len(b) || !isDigit(b[i]))
}

// words maps the words for units of time to their lengths.
var words = [...]struct {
	words  string // between spaces, in lower case
	length time.Duration
}{
	{" ns ", 1},
	{" us µs ", time.Microsecond},
	{" ms msec msecs millis millisecond milliseconds ", time.Millisecond},
	{" s sec secs second seconds ", time.Second},
	{" m min mins minute minutes ", time.Minute},
	{" h hr hrs hour hours ", time.Hour},
	{" d day days ", 24 * time.Hour},
	{" w week weeks ", 7 * 24 * time.Hour},
}

// signs are the units of languages without spaces. Longer ones precede their prefixes.
var signs = [...]struct {
	sign   string
	length time.Duration
}{
	{"毫秒", time.Millisecond}, {"秒", time.Second}, {"分钟", time.Minute}, {"分", time.Minute},
	{"小时", time.Hour}, {"时间", time.Hour}, {"時間", time.Hour}, {"天", 24 * time.Hour}, {"日", 24 * time.Hour},
}

// cutWord parses the unit at the start of b; 0 if there is none.
func cutWord(b []byte) (time.Duration, []byte) {
	for i := range signs {
		if after, found := bytes.CutPrefix(b, []byte(signs[i].sign)); found {
			return signs[i].length, after
		}
	}
	n := 0
	for n < len(b) && (isLetter(b[n]) || b[n] >= 0x80) {
		n++
	}
	if n == 0 || n > len("milliseconds") {
		return 0, b
	}
	for i := range words {
		if hasWord(words[i].words, b[:n]) {
			return words[i].length, b[n:]
		}
	}
	return 0, b
}

// hasWord reports whether words contains word, in any case, between two spaces.
func hasWord(words string, word []byte) bool {
	for i := 1; i+len(word) < len(words); i++ {
		if words[i-1] == ' ' && words[i+len(word)] == ' ' && bytes.EqualFold(word, []byte(words[i:i+len(word)])) {
			return true
		}
	}
	return false
}
