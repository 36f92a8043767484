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
// "1 minute and 30 seconds", "1,000 seconds", "an hour", 30秒, and 1:02:03 as a time span. Each unit is
// a separate word and smaller than the one before. It returns what follows. If whole is false, b was
// cut off, so a duration at its end may be incomplete and does not count.
func CutDuration(b []byte, whole bool) (sum time.Duration, rest []byte, ok bool) {
	last, rest := backoff.Forever, b
	for next := b; ; next = cutJoint(rest) {
		if !whole && len(next) < minUncut {
			return 0, b, false
		}
		if d, after, span := cutSpan(next); span && !ok {
			return d, after, true
		}
		n, after, found := cutQuantity(next)
		if !found {
			return sum, rest, ok
		}
		length, after := cutWord(bytes.TrimPrefix(after, []byte(" ")))
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

// cutQuantity parses the number, or the word for 1, at the start of b. Digits may be in groups of three.
func cutQuantity(b []byte) (n decimal, after []byte, ok bool) {
	for _, one := range [...]string{"a ", "an ", "one "} {
		if len(b) >= len(one) && equalName(b[:len(one)], []byte(one)) {
			return decimal{whole: 1}, b[len(one)-1:], true
		}
	}
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
