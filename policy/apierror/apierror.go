// Package apierror reads what the JSON body of an API error says about a retry: how long to wait,
// and whether the account is used up, so that no wait helps. Start with List.Read.
//
// LLM APIs often state the wait of a rate limit only in the body: Google in RetryInfo, OpenAI and
// others in the message. Error codes also distinguish a rate limit from spent credit, which are
// both a 429. Entries lists the known codes and texts.
//
// WaitForms lists the known forms of a wait. A rule finds durations in other forms, see near.
//
// The package does not parse JSON. It scans tokens, so a body may be cut off, deeply nested, or no
// JSON at all. Package retryafter reads the headers.
package apierror

import (
	"bytes"
	"sync"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
	"github.com/retryproxy/retryproxy/policy/retryafter"
)

// MaxBytes is how many bytes of a body are read.
const MaxBytes = 8 << 10

// maxMessages limits the bytes searched for texts and waits, which is the expensive part. Messages
// have up to a few hundred bytes.
const maxMessages = 2 << 10

// maxParses limits the numbers and times of a body that may be waits and are parsed.
const maxParses = 48

// Verdict is what a body says about a retry. The zero value means nothing.
type Verdict struct {
	Wait    time.Duration // the longest wait that the body asks for; never negative
	HasWait bool

	// Guessed means that Wait is not in a form of WaitForms: it is a duration beside words that are
	// about a limit or a retry. Or that Exhausted follows from words, and not from a sign of the list.
	// Either counts only if nothing else is known about the wait.
	Guessed bool

	// Exhausted means that an account is used up. It is false if the body asks for a wait in a form of
	// WaitForms, because then the upstream expects a retry.
	Exhausted bool

	// UsedUp means the same, whether or not the body asks for a wait: it is then when the account is
	// renewed.
	UsedUp bool

	// Renewed is how long it is until an account that is Exhausted is renewed; 0: unknown.
	Renewed time.Duration

	// TooLarge means that the request exceeds a limit by itself, so that no retry can succeed.
	TooLarge bool
}

// Read scans the first MaxBytes of body: JSON, an event with JSON, or a text that is no markup. A time is relative to date,
// the Date header of the response, or else to now. Read takes time in proportion to what it reads.
func (l *List) Read(body, date []byte, now time.Time) Verdict {
	s := scanners.Get().(*scanner)
	s.state = state{list: l, rest: body[:min(len(body), MaxBytes)], messages: maxMessages, parses: maxParses, date: date, now: now}
	defer func() {
		s.state = state{} // it refers to the body
		scanners.Put(s)
	}()
	s.rest = bytes.TrimPrefix(s.rest, []byte("\ufeff"))
	s.skipSpace()
	s.skipToData()
	if len(s.rest) == 0 {
		return Verdict{}
	}
	switch s.rest[0] {
	case '{', '[':
		for len(s.rest) > 0 {
			s.token()
		}
	case '<':
		return Verdict{}
	default:
		s.message(s.rest, len(body) <= MaxBytes)
	}
	return s.verdict()
}

// skipToData skips what precedes the data of an event: a stream that failed may still be one.
func (s *scanner) skipToData() {
	for _, field := range [...]string{"data:", "event:", "id:", "retry:", ":"} {
		if !bytes.HasPrefix(s.rest, []byte(field)) {
			continue
		}
		if at := bytes.Index(s.rest, []byte("data:")); at == 0 || at > 0 && (s.rest[at-1] == '\n' || s.rest[at-1] == '\r') {
			s.rest = s.rest[at+len("data:"):]
			s.skipSpace()
		}
		return
	}
}

// Roles of the members of an error object, at any depth of the body.
const (
	holdsCode    = 1 << iota // a code of the list
	holdsMessage             // a text for humans
)

// roles returns the roles of a key. Keys without roles and waitKey are skipped.
func roles(key []byte) uint8 {
	switch string(key) {
	case "code", "type", "status", "reason", "error_code", "error_type", "quotaId":
		return holdsCode
	case "error": // an object, a code or a message
		return holdsCode | holdsMessage
	case "message", "msg", "detail", "error_message", "error_description", "errors", "title", "description", "errorMessage",
		"error_msg",  // Baidu
		"status_msg", // MiniMax
		"raw":        // OpenRouter: the provider's body, as a text
		return holdsMessage
	}
	return 0
}

// scanner scans the tokens of a body. It keeps no stack: the key alone determines the role of a
// value.
type scanner struct {
	state
	text2k [maxMessages]byte // see unescape
	nearAt [64]uint16        // see findNear
}

// state is what a scanner knows of one body.
type state struct {
	list  *List
	rest  []byte
	date  []byte
	now   time.Time
	found Verdict // Wait in a known form
	guess guess   // wait in another form

	role  uint8         // of the next value; 0 without a key of interest
	wait  waitKey       // of the next value
	key   []byte        // of the next value
	outer []byte        // the key of the object that the next key is in; nil: unknown
	part  time.Duration // the last wait in that object

	renewed time.Duration // when an account or a limit is renewed
	spent   bool          // by saysSpent

	messages int // bytes that may still be searched
	parses   int // numbers and times that may still be parsed

	nearN int // see findNear; below 0: not searched yet
}

// guess is the wait that is guessed.
type guess struct {
	Verdict
	isTime bool // it is until a time that the body states
}

// scanners keeps scanners, which are too large for the stack of a request that waits afterwards.
var scanners = sync.Pool{New: func() any { return new(scanner) }}

// verdict combines what was found.
func (s *scanner) verdict() Verdict {
	v := s.found
	if v.TooLarge {
		return Verdict{TooLarge: true}
	}
	if !v.Exhausted && s.renewed > 0 { // of a rate limit
		v.add(s.renewed)
	}
	switch {
	case v.Exhausted:
		v.UsedUp, v.Exhausted = true, !v.HasWait
		switch {
		case v.HasWait:
		case s.renewed == 0 && s.guess.isTime:
			v.Renewed = s.guess.Wait
		default:
			v.Renewed = s.renewed
		}
	case v.HasWait:
	case s.guess.HasWait:
		v.Wait, v.HasWait, v.Guessed = s.guess.Wait, true, true
	case s.spent:
		v.Exhausted, v.UsedUp, v.Guessed = true, true, true
	}
	return v
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
	case c == '[': // its first text may be a message, or a wait
		s.rest, s.role = s.rest[1:], s.role&holdsMessage
		if !s.wait.known {
			s.wait = waitKey{}
		}
	default: // a brace, a comma, or something that is not JSON
		switch c {
		case '{':
			s.outer, s.part = s.key, 0
		case '}':
			s.outer = nil
		}
		s.rest = s.rest[1:]
		s.endValue()
	}
}

// endValue forgets the key of the value that was read.
func (s *scanner) endValue() { s.role, s.wait, s.key = 0, waitKey{}, nil }

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
		s.rest, s.role, s.wait, s.key = s.rest[1:], roles(b[:end]), keyOfWait(s.outer, b[:end]), b[:end]
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
	s.rest = s.rest[end:]
	s.endValue()
}

func (s *scanner) skipSpace() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\t' || s.rest[0] == '\n' || s.rest[0] == '\r') {
		s.rest = s.rest[1:]
	}
}

// value processes a string; whole means that its end was seen.
func (s *scanner) value(v []byte, whole bool) {
	if whole {
		s.code(v)
		s.waits(v)
	}
	if s.role&holdsMessage != 0 {
		s.message(s.unescape(v, whole))
	}
	s.endValue()
}

// number processes a number.
func (s *scanner) number(v []byte) {
	s.code(v)
	s.waits(v)
}

// code processes a value that may be a code.
func (s *scanner) code(v []byte) {
	if s.role&holdsCode == 0 {
		return
	}
	s.found.Exhausted = s.found.Exhausted || s.list.hasCode(v)
	s.found.TooLarge = s.found.TooLarge || s.list.isTooLarge(v, false)
}

// waits processes a value that may be a wait.
func (s *scanner) waits(v []byte) {
	if s.wait.unit == 0 || !s.wait.takes(v) || !s.mayParse() {
		return
	}
	d, ok := retryafter.ParseReset(v, s.wait.unit, s.date, s.now)
	if !ok {
		return
	}
	if s.wait.unit == time.Nanosecond { // beside the seconds
		d += min(s.part, backoff.Forever-d)
	}
	s.part = d
	s.addKeyed(s.wait, d)
}

// mayParse reports whether another number or time may be parsed, and counts it.
func (s *scanner) mayParse() bool {
	s.parses--
	return s.parses >= 0
}

// add adds a wait.
func (v *Verdict) add(d time.Duration) { v.Wait, v.HasWait = max(v.Wait, d), true }

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
