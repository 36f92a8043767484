// Package apierror reads what the JSON body of an API error says about a retry: how long to wait,
// and whether the account is used up, so that no wait helps. Start with List.Read.
//
// LLM APIs often state the wait of a rate limit only in the body: Google in RetryInfo, OpenAI and
// others in the message. Error codes also distinguish a rate limit from spent credit, which are
// both a 429. Entries lists the known codes and texts.
//
// The package does not parse JSON. It scans tokens, so a body may be cut off, deeply nested, or no
// JSON at all. Package retryafter reads the headers.
package apierror

import (
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// MaxBytes is how many bytes of a body are read.
const MaxBytes = 8 << 10

// maxMessages limits the bytes searched for texts and waits, which is the expensive part. Messages
// have up to a few hundred bytes.
const maxMessages = 2 << 10

// Verdict is what a body says about a retry. The zero value means nothing.
type Verdict struct {
	Wait    time.Duration // the longest wait that the body asks for; never negative
	HasWait bool

	// Exhausted means that an account is used up. It is false if the body asks for a wait, because
	// then the upstream expects a retry.
	Exhausted bool
}

// Read scans the first MaxBytes of body. It does not allocate, and it takes time in proportion to
// what it reads.
func (l *List) Read(body []byte) Verdict {
	s := scanner{list: l, rest: body[:min(len(body), MaxBytes)], messages: maxMessages}
	s.skipSpace()
	if len(s.rest) == 0 || s.rest[0] != '{' && s.rest[0] != '[' {
		return Verdict{}
	}
	for len(s.rest) > 0 {
		s.token()
	}
	v := s.found
	v.Exhausted = v.Exhausted && !v.HasWait
	return v
}

// Roles of the members of an error object, at any depth of the body.
const (
	holdsCode    = 1 << iota // a code of the list
	holdsMessage             // a text for humans
	holdsWait                // a duration with a unit
	holdsSeconds             // a number of seconds
)

// roles returns the roles of a key. Keys without roles are skipped.
func roles(key []byte) uint8 {
	switch string(key) {
	case "code", "type", "status", "reason", "error_code", "error_type", "quotaId":
		return holdsCode
	case "error": // an object, a code or a message
		return holdsCode | holdsMessage
	case "message", "msg", "detail", "error_message", "error_description":
		return holdsMessage
	case "retryDelay": // google.rpc.RetryInfo, as JSON
		return holdsWait
	case "retry_after": // Discord, "Rate Limits"
		return holdsSeconds
	}
	return 0
}

// scanner scans the tokens of a body. It keeps no stack: the key alone determines the role of a
// value.
type scanner struct {
	list  *List
	rest  []byte
	role  uint8 // of the next value; 0 without a key of interest
	found Verdict

	messages int // bytes that may still be searched
}

// token reads the next token, which is at least one byte.
func (s *scanner) token() {
	switch c := s.rest[0]; {
	case c == '"':
		s.text()
	case c == '-' || isAlnum(c):
		s.literal()
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		s.rest = s.rest[1:]
	default: // a bracket, a comma, or something that is not JSON
		s.rest, s.role = s.rest[1:], 0
	}
}

// text reads a string: a key if a colon follows, otherwise a value.
func (s *scanner) text() {
	b := s.rest[1:]
	end := 0
	for end < len(b) && b[end] != '"' {
		if b[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(b) { // cut off
		s.value(b, false)
		s.rest = nil
		return
	}
	s.rest = b[end+1:]
	s.skipSpace()
	if len(s.rest) > 0 && s.rest[0] == ':' {
		s.rest, s.role = s.rest[1:], roles(b[:end])
		return
	}
	s.value(b[:end], true)
}

// literal reads a number, true, false or null. At the end of the body it may be cut off.
func (s *scanner) literal() {
	end := 1
	for end < len(s.rest) && (isAlnum(s.rest[end]) || s.rest[end] == '.' || s.rest[end] == '-' || s.rest[end] == '+') {
		end++
	}
	if end < len(s.rest) {
		s.number(s.rest[:end])
	}
	s.rest, s.role = s.rest[end:], 0
}

func (s *scanner) skipSpace() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t' || s.rest[0] == '\n' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

// value processes a string; whole means that its end was seen.
func (s *scanner) value(v []byte, whole bool) {
	if s.role&holdsCode != 0 && whole && s.list.hasCode(v) {
		s.found.Exhausted = true
	}
	if s.role&holdsMessage != 0 {
		s.message(v, whole)
	}
	if s.role&holdsWait != 0 && whole {
		if d, ok := retryafter.ParseDuration(v); ok {
			s.wait(d)
		}
	}
	s.role = 0
}

// number processes a number.
func (s *scanner) number(v []byte) {
	if s.role&holdsCode != 0 && s.list.hasCode(v) {
		s.found.Exhausted = true
	}
	if s.role&holdsSeconds != 0 && len(v) <= maxNumber {
		if d, ok := retryafter.Parse(v, nil, time.Time{}); ok {
			s.wait(d)
		}
	}
}

// maxNumber limits the bytes of a number of seconds.
const maxNumber = 64

func (s *scanner) wait(d time.Duration) {
	s.found.Wait, s.found.HasWait = max(s.found.Wait, d), true
}

// message processes a text for humans.
func (s *scanner) message(v []byte, whole bool) {
	if len(v) > s.messages {
		v, whole = v[:s.messages], false
	}
	s.messages -= len(v)
	if s.list.hasText(v) {
		s.found.Exhausted = true
	}
	for i := range phrases {
		for rest := v; ; {
			at := indexFold(rest, phrases[i])
			if at < 0 {
				break
			}
			rest = rest[at+len(phrases[i]):]
			if d, ok := spokenDuration(rest, whole); ok {
				s.wait(d)
			}
		}
	}
}

// phrases precede a wait in a message, in lower case: "Please try again in 6.1s" (OpenAI, Groq),
// "Please retry in 36.4s" (Gemini), "Please retry after 6 seconds" (Azure OpenAI).
var phrases = [...]string{"try again in ", "retry in ", "retry after ", "try again after "}

// spokenDuration parses the duration at the start of b: 6.1s, 1m30s, 88ms, "6 seconds", "1 minute
// and 30 seconds". Each unit is a separate word and smaller than the one before. If whole is false,
// b was cut off, so a duration at its end may be incomplete.
func spokenDuration(b []byte, whole bool) (sum time.Duration, ok bool) {
	last := backoff.Forever
	for {
		if !whole && len(b) < 2*maxNumber {
			return 0, false
		}
		n, after := cutNumber(b)
		if n == 0 {
			return sum, ok
		}
		number := b[:n]
		if len(after) > 0 && after[0] == ' ' {
			after = after[1:]
		}
		w := 0
		for w < len(after) && (isLetter(after[w]) || after[w] >= 0x80) {
			w++
		}
		short, length := unitOf(after[:w])
		if short == "" || length >= last {
			return sum, ok
		}
		var text [maxNumber]byte
		d, fits := retryafter.ParseDuration(append(append(text[:0], number...), short...))
		if !fits {
			return 0, false
		}
		sum, ok, last = sum+min(d, backoff.Forever-sum), true, length
		b = joint(after[w:])
	}
}

// joint skips what may separate two parts of a duration.
func joint(b []byte) []byte {
	for _, between := range [...]string{", and ", ", ", " and ", " "} {
		if len(b) >= len(between) && string(b[:len(between)]) == between {
			return b[len(between):]
		}
	}
	return b
}

// cutNumber returns the length of the number at the start of b; 0 if there is none or it is too
// long.
func cutNumber(b []byte) (n int, after []byte) {
	for n < len(b) && n <= maxNumber && isDigit(b[n]) {
		n++
	}
	if n > 0 && n+1 < len(b) && b[n] == '.' && isDigit(b[n+1]) {
		for n++; n < len(b) && n <= maxNumber && isDigit(b[n]); n++ {
		}
	}
	if n > maxNumber-2 {
		return 0, b
	}
	return n, b[n:]
}

// units maps the words for units of time to the units of retryafter.ParseDuration.
var units = [...]struct {
	words  string // separated by spaces
	short  string
	length time.Duration
}{
	{" ns ", "ns", 1},
	{" us µs ", "us", time.Microsecond},
	{" ms msec millisecond milliseconds ", "ms", time.Millisecond},
	{" s sec secs second seconds ", "s", time.Second},
	{" m min mins minute minutes ", "m", time.Minute},
	{" h hr hrs hour hours ", "h", time.Hour},
	{" d day days ", "d", 24 * time.Hour},
}

// unitOf returns the unit that a word means.
func unitOf(word []byte) (short string, length time.Duration) {
	if len(word) == 0 || len(word) > len("milliseconds") {
		return "", 0
	}
	for i := range units {
		if hasWord(units[i].words, word) {
			return units[i].short, units[i].length
		}
	}
	return "", 0
}

// hasWord reports whether words contains word, in any case, between two spaces.
func hasWord(words string, word []byte) bool {
	for i := 1; i+len(word) < len(words); i++ {
		if words[i-1] == ' ' && words[i+len(word)] == ' ' && equalFold(word, words[i:i+len(word)]) {
			return true
		}
	}
	return false
}

// indexFold returns the index of s in b, or -1. s is in lower case and not empty.
func indexFold(b []byte, s string) int {
	for i := 0; i+len(s) <= len(b); i++ {
		if c := b[i]; (c == s[0] || 'A' <= c && c <= 'Z' && c|0x20 == s[0]) && equalFold(b[i:i+len(s)], s) {
			return i
		}
	}
	return -1
}

// equalFold compares b with s, which is in lower case.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != s[i] {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isAlnum(c byte) bool  { return isDigit(c) || isLetter(c) }
