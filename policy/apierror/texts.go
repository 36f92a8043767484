package apierror

import (
	"bytes"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// message processes a text for humans.
func (s *scanner) message(v []byte, whole bool) {
	if len(v) > s.messages {
		v, whole = v[:s.messages], false
	}
	s.messages -= len(v)
	s.nearN = -1
	s.found.Exhausted = s.found.Exhausted || s.list.hasText(v)
	s.found.TooLarge = s.found.TooLarge || s.list.isTooLarge(v, true)
	s.spent = s.spent || !s.list.ignoresRule && saysSpent(v) && !hasAny(v, s.list.leftOut)
	if !s.phrases(v, whole) {
		s.quantities(v, whole)
	}
}

// unescape decodes the escapes of a JSON string into a buffer that the next call uses again. An escape
// that is cut off or broken remains as it is. A line end becomes a space.
func (s *scanner) unescape(v []byte, whole bool) ([]byte, bool) {
	if bytes.IndexByte(v, '\\') < 0 {
		return v, whole
	}
	out := s.text2k[:0]
	for i := 0; i < len(v); i++ {
		if len(out)+utf8.UTFMax > cap(out) {
			return out, false
		}
		if v[i] != '\\' || i+1 == len(v) {
			out = append(out, v[i])
			continue
		}
		switch i++; v[i] {
		case 'n', 'r', 't', 'f', 'b':
			out = append(out, ' ')
		case 'u':
			r, ok := hexRune(v[i+1:])
			if !ok {
				out = append(out, '\\', 'u')
				continue
			}
			out = utf8.AppendRune(out, r)
			i += 4
		default:
			out = append(out, v[i])
		}
	}
	return out, whole
}

// hexRune parses four hexadecimal digits.
func hexRune(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case isDigit(c):
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// phrases adds the waits after the phrases of waitForms. It reports whether there were any.
func (s *scanner) phrases(v []byte, whole bool) (found bool) {
	for i := range waitForms {
		f := &waitForms[i]
		if f.Phrase == "" {
			continue
		}
		for rest := v; ; {
			at := indexPhrase(rest, f.Phrase)
			if at < 0 {
				break
			}
			rest = rest[at+len(f.Phrase):]
			d, ok := s.spoken(rest, whole, f.Bare)
			switch {
			case ok && f.Renews:
				s.renewed = max(s.renewed, d)
			case ok:
				s.found.add(d)
			}
			found = found || ok
		}
	}
	return found
}

// indexPhrase is like indexFold, but a space of the phrase may be a hyphen or an underscore in b.
func indexPhrase(b []byte, phrase string) int {
	for from := 0; ; {
		i := indexFold(b[from:], phrase[:strings.IndexByte(phrase, ' ')])
		if i < 0 || from+i+len(phrase) > len(b) {
			return -1
		}
		from += i
		n := 0
		for n < len(phrase) && (b[from+n]|0x20 == phrase[n] || phrase[n] == ' ' && (b[from+n] == '-' || b[from+n] == '_')) {
			n++
		}
		if n == len(phrase) {
			return from
		}
		from++
	}
}

// fillers may stand between a phrase and its wait.
var fillers = [...]string{" ", ":", "=", "\"", "'", "\\", "~", "≈", "*", "(", "about ", "approximately ", "approx. ", "around ", "roughly ", "at least ", "another ", "the next "}

// spoken parses the wait after a phrase; bare means that seconds need no unit. Otherwise a number without
// a unit is guessed to be seconds.
func (s *scanner) spoken(b []byte, whole, bare bool) (time.Duration, bool) {
	for i := 0; i < len(fillers); i++ {
		if len(b) >= len(fillers[i]) && equalFold(b[:len(fillers[i])], fillers[i]) {
			b, i = b[len(fillers[i]):], -1
		}
	}
	if d, _, ok := retryafter.CutDuration(b, whole); ok {
		return d, true
	}
	if d, _, ok := s.cutTime(b, whole); ok {
		return d, true
	}
	n := bareNumber(b)
	if !whole || n == 0 || n > maxBare {
		return 0, false
	}
	d, ok := retryafter.Parse(b[:n], nil, time.Time{})
	if ok && !bare {
		s.guess.add(d)
	}
	return d, ok && bare
}

// maxBare is the longest number without a unit that is seconds, in bytes: a longer one may be a time.
const maxBare = 7

// bareNumber returns the length of the number at the start of b, if it stands alone; 0 otherwise.
func bareNumber(b []byte) int {
	n := 0
	for n < len(b) && (isDigit(b[n]) || b[n] == '.' && n+1 < len(b) && isDigit(b[n+1])) {
		n++
	}
	if n < len(b) && (isAlnum(b[n]) || strings.IndexByte("-:/", b[n]) >= 0 || b[n] == ' ' && n+1 < len(b) && isAlnum(b[n+1])) {
		return 0
	}
	return n
}

// quantities looks for waits that are in none of the phrases: after a key, as in retry_delay=5, and by
// the rule of near.
func (s *scanner) quantities(v []byte, whole bool) {
	for i := 0; i < len(v); i++ {
		if !startsQuantity(v, i) {
			continue
		}
		if !s.mayParse() {
			return
		}
		end := s.keyed(v, i, whole)
		if end == 0 {
			end = s.guessed(v, i, whole)
		}
		i = max(end-1, i)
	}
}

// keyed adds the value at v[i] if the text before it is a key of a wait. It returns the end of the value,
// or 0.
func (s *scanner) keyed(v []byte, i int, whole bool) (end int) {
	outer, key := keysBefore(v[:i])
	w := keyOfWait(outer, key)
	if w.unit == 0 {
		return 0
	}
	d, rest, ok := retryafter.CutDuration(v[i:], whole)
	end = len(v) - len(rest)
	if !ok {
		for end = i; end < len(v) && strings.IndexByte(" \"',;}])\\", v[end]) < 0; end++ {
		}
		if end == len(v) && !whole {
			return 0
		}
		if d, ok = retryafter.ParseReset(bytes.TrimRight(v[i:end], "."), w.unit, s.date, s.now); !ok || !w.takes(v[i:end]) {
			return 0
		}
	}
	if nanos, more := bytes.CutPrefix(bytes.TrimLeft(v[end:], " \n,"), []byte("nanos: ")); more && outer != nil {
		part, ok := retryafter.ParseReset(nanos[:bareNumber(nanos)], time.Nanosecond, nil, time.Time{})
		if ok {
			d += min(part, time.Second)
		}
	}
	s.addKeyed(w, d)
	return end
}

// addKeyed adds the value of a key.
func (s *scanner) addKeyed(w waitKey, d time.Duration) {
	if w.known {
		s.found.add(d)
	} else {
		s.guess.add(d)
	}
}

// keysBefore returns the key that a colon or an equals sign separates from the end of v, and the key of
// the object that it begins, as in retry_delay { seconds: 34.
func keysBefore(v []byte) (outer, key []byte) {
	v = bytes.TrimRight(v, " \"'\\")
	if len(v) == 0 || v[len(v)-1] != ':' && v[len(v)-1] != '=' {
		return nil, nil
	}
	v, key = cutKey(v[:len(v)-1])
	if v = bytes.TrimRight(v, " \"'\\\n\r\t"); len(v) > 0 && v[len(v)-1] == '{' {
		_, outer = cutKey(bytes.TrimRight(v[:len(v)-1], " :=\"'\\"))
	}
	return outer, key
}

// cutKey cuts off the key at the end of v, in quotes or not.
func cutKey(v []byte) (before, key []byte) {
	v = bytes.TrimRight(v, " \"'\\")
	from := len(v)
	for from > 0 && len(v)-from < maxKey && (isAlnum(v[from-1]) || strings.IndexByte("_- ", v[from-1]) >= 0) {
		from--
	}
	return v[:from], bytes.TrimLeft(v[from:], " ")
}

// guessed adds the duration or time at v[i] if it is near a word of near. It returns its end, or 0.
func (s *scanner) guessed(v []byte, i int, whole bool) (end int) {
	d, rest, isTime := s.cutTime(v[i:], whole)
	ok := isTime
	if !ok && len(rest) < len(v)-i {
		return len(v) - len(rest)
	}
	if !ok {
		d, rest, ok = retryafter.CutClock(v[i:], isHour(v[:i]), s.date, s.now)
		isTime = ok
	}
	if !ok {
		d, rest, ok = retryafter.CutDuration(v[i:], whole)
	}
	if !ok {
		return 0
	}
	end = len(v) - len(rest)
	if s.isNear(v, i, end) {
		s.guess.addGuess(d, isTime)
	}
	return end
}

// isHour reports whether what follows before is the time of a day, and not a duration.
func isHour(before []byte) bool {
	for _, word := range [...]string{" at ", " until ", " till ", " by "} {
		if n := len(before) - len(word); n >= 0 && equalFold(before[n:], word) {
			return true
		}
	}
	return false
}

// addGuess adds a wait that is guessed. A time says more than a duration, which may be a window.
func (g *guess) addGuess(d time.Duration, isTime bool) {
	switch {
	case isTime && !g.isTime:
		g.Wait, g.HasWait, g.isTime = d, true, true
	case isTime == g.isTime:
		g.add(d)
	}
}

// startsQuantity reports whether a number, a word for one, or a date may begin at v[i].
func startsQuantity(v []byte, i int) bool {
	if i > 0 && (isAlnum(v[i-1]) || strings.IndexByte(".-,:$+", v[i-1]) >= 0 || v[i-1] == '/' && (i == 1 || !isDigit(v[i-2]))) {
		return i > 1 && isDigit(v[i]) && (v[i-1] == ':' || v[i-1] == '=') && isLetter(v[i-2]) // a key and its value
	}
	return isDigit(v[i]) || retryafter.StartsNumber(v[i:]) || retryafter.StartsDate(v[i:])
}

// maxAway bounds a guessed time: a number or a date beyond it means something else.
const maxAway = 400 * 24 * time.Hour

// maxWords are the most words of a time.
const maxWords = 6

// cutTime parses the time at the start of b, and returns how long it is until then. A time that is past or
// far away is cut, but is not ok.
func (s *scanner) cutTime(b []byte, whole bool) (d time.Duration, rest []byte, ok bool) {
	digits := 0
	for digits < len(b) && isDigit(b[digits]) {
		digits++
	}
	if (digits == len("1772366430") || digits == len("1772366430000")) && (digits < len(b) && !isAlnum(b[digits]) || digits == len(b) && whole) {
		d, ok = retryafter.ParseReset(b[:digits], time.Second, s.date, s.now)
		return d, b[digits:], ok && isAhead(d)
	}
	if !retryafter.StartsDate(b) {
		return 0, b, false
	}
	s.parses -= costOfTime
	rest = b
	end := -1
	for words := 0; words < maxWords && end < len(b); words++ {
		for end++; end < len(b) && b[end] != ' ' && strings.IndexByte("\"');|\\]}", b[end]) < 0; end++ {
		}
		text := bytes.TrimRight(b[:min(end, len(b))], ".,")
		if len(text) > maxTime {
			break
		}
		if got, valid := retryafter.ParseReset(text, time.Second, s.date, s.now); valid {
			d, rest, ok = got, b[len(text):], isAhead(got)
		}
		if end < len(b) && b[end] != ' ' {
			break
		}
	}
	return d, rest, ok
}

func isAhead(d time.Duration) bool { return d > 0 && d < maxAway }

// costOfTime is what a time with a date costs, in other numbers: it is tried in many formats.
const costOfTime = 12

// maxTime is the longest time in a message, in bytes.
const maxTime = 40

// nearby is how far, in bytes, one of near may be from a duration. Within the same sentence it may be as
// far as sentence.
const nearby, sentence = 64, 160

// near are words that make a duration a wait, in lower case. This is the rule for what waitForms does
// not have: "You can send more in 30 seconds: quota exceeded". A window counts too, as in "5 requests
// per 60 seconds": after it, the limit is renewed.
var near = [...]string{"quota", "limit", "reset", "retry", "again", "wait", "throttl", "cool", "renew", "replenish", "refill", "available", "too many", "slow down",
	"next", "come back", "back off", "block", "suspend", "timed out for", "hold off", "another request", "allowed", "banned", "later",
	"限", "重试", "重置", "再试", "频繁", "稍后", "再試行"}

// isNear reports whether one of near is close to v[from:to] of a message, and the text does not say that it is past.
func (s *scanner) isNear(v []byte, from, to int) bool {
	if after := v[to:]; len(after) >= 4 && equalFold(after[:4], " ago") {
		return false
	}
	begin, end := max(from-sentence, 0), min(to+sentence, len(v))
	if at := lastEnd(v[begin:from]); at >= 0 {
		begin += at
	}
	if at := firstEnd(v[to:end]); at >= 0 {
		end = to + at
	}
	begin, end = min(begin, max(from-nearby, 0)), max(end, min(to+nearby, len(v)))
	s.findNear(v)
	for _, at := range s.nearAt[:max(s.nearN, 0)] {
		if int(at) >= begin && int(at) < end {
			return true
		}
	}
	return s.nearN == len(s.nearAt)
}

// findNear finds the words of near in v, once for each message. If there are more than fit, all of it is
// near one.
func (s *scanner) findNear(v []byte) {
	if s.nearN >= 0 {
		return
	}
	s.nearN = 0
	for _, word := range near {
		for from := 0; s.nearN < len(s.nearAt); {
			at := indexFold(v[from:], word)
			if at < 0 {
				break
			}
			s.nearAt[s.nearN] = uint16(from + at)
			s.nearN++
			from += at + len(word)
		}
	}
}

// lastEnd and firstEnd return where the last or the first sentence of b ends; -1 if none does.
func lastEnd(b []byte) int {
	for i := len(b) - 2; i >= 0; i-- {
		if isEnd(b[i:]) {
			return i
		}
	}
	return -1
}

func firstEnd(b []byte) int {
	for i := 0; i < len(b)-1; i++ {
		if isEnd(b[i:]) {
			return i
		}
	}
	return -1
}

// isEnd reports whether a sentence ends at the start of b, which has two bytes or more.
func isEnd(b []byte) bool {
	return (b[0] == '.' || b[0] == '!' || b[0] == '?') && b[1] == ' ' || b[0] == '\n'
}
