package retryafter

import (
	"bytes"
	"strings"
	"time"
)

// structuredHeaders holds the headers RateLimit and RateLimit-Policy.
type structuredHeaders struct {
	current, policies headerLines
	rules             [maxPairs]rateLimitItem // the first members of RateLimit-Policy; see readPolicies
	n                 int
}

var currentName, policyName = newPattern("RateLimit"), newPattern("RateLimit-Policy")

// add records one of the two headers, and reports whether it is one.
func (s *structuredHeaders) add(name, value []byte) bool {
	if _, ok := currentName.match(name); ok {
		s.current.add(value)
		return true
	}
	if _, ok := policyName.match(name); ok {
		s.policies.add(value)
		return true
	}
	return false
}

// each calls yield for every rate limit of RateLimit, with q and w of its policy. It reports
// whether the header is well-formed. If not, all of it must be ignored (RFC 9651 section 4.2).
func (s *structuredHeaders) each(yield func(rateLimitItem)) bool {
	if s.current.n == 0 {
		return true
	}
	s.readPolicies()
	older := unsetItem // the dictionary of draft -07 describes one rate limit
	for _, line := range s.current.all() {
		list := rateLimitItems{rest: trimSpace(line)}
		for list.next() {
			m := list.item
			if m.dictionary {
				older.setMember(&m)
				continue
			}
			policy := s.policy(m.name)
			m.q, m.w = policy.q, policy.w
			yield(m)
		}
		if list.bad {
			return false
		}
	}
	yield(older)
	return true
}

// readPolicies sets the rules; none if RateLimit-Policy is malformed anywhere.
func (s *structuredHeaders) readPolicies() {
	s.n = 0
	for _, line := range s.policies.all() {
		list := rateLimitItems{rest: trimSpace(line)}
		for list.next() {
			if s.n < maxPairs {
				s.rules[s.n] = list.item
				s.n++
			}
		}
		if list.bad {
			s.n = 0
			return
		}
	}
}

// policy returns the last rule with that name; all is unset if there is none.
func (s *structuredHeaders) policy(name []byte) rateLimitItem {
	for i := s.n - 1; i >= 0; i-- {
		if bytes.Equal(s.rules[i].name, name) {
			return s.rules[i]
		}
	}
	return unsetItem
}

// wait returns the longest wait for an exhausted rate limit.
func (s *structuredHeaders) wait() (longest time.Duration, told bool) {
	ok := s.each(func(m rateLimitItem) {
		seconds := m.t
		if seconds < 0 {
			seconds = m.w
		}
		if m.r == 0 && seconds >= 0 {
			longest, told = max(longest, decimal{whole: seconds}.times(time.Second)), true
		}
	})
	if !ok {
		return 0, false
	}
	return longest, told
}

// isExhausted reports whether nothing is left of one of the rate limits.
func (s *structuredHeaders) isExhausted() (is bool) {
	return s.each(func(m rateLimitItem) { is = is || m.r == 0 }) && is
}

// headerLines holds the values of the lines of a list header. If there are too many or too long
// ones, the header is unreadable.
type headerLines struct {
	values [4][]byte
	n      int
	bytes  int
}

func (l *headerLines) add(value []byte) {
	if l.n < len(l.values) {
		l.values[l.n] = value
	}
	l.n++
	l.bytes += len(value)
}

// all returns the lines, or nothing if there was too much.
func (l *headerLines) all() [][]byte {
	if l.n > len(l.values) || l.bytes > maxList {
		return nil
	}
	return l.values[:l.n]
}

// unset stands for a number that is missing or is not an integer of 0 or more.
const unset = -1

// maxDigits bounds an integer (RFC 9651 section 3.3.1), so that none overflows.
const maxDigits = 15

// rateLimitItem is a member of a list (a name with parameters) or of a dictionary (a name with a
// value).
type rateLimitItem struct {
	name       []byte // without quotes; a name with an escape keeps it
	dictionary bool
	value      int64 // of a dictionary member
	q, r, t, w int64 // quota, remaining, reset and window
}

var unsetItem = rateLimitItem{value: unset, q: unset, r: unset, t: unset, w: unset}

// setMember sets what a member of the dictionary of draft -07 states.
func (m *rateLimitItem) setMember(d *rateLimitItem) {
	switch string(d.name) {
	case "limit":
		m.q = d.value
	case "remaining":
		m.r = d.value
	case "reset":
		m.t = d.value
	}
}

// rateLimitItems iterates over the members of a list or dictionary (RFC 9651 sections 3.1 and 3.2).
// Inner lists, which these headers never have, make it bad.
type rateLimitItems struct {
	rest  []byte
	item  rateLimitItem
	begun bool
	bad   bool
}

// next reads the next member; false at the end, or if it is bad.
func (s *rateLimitItems) next() bool {
	if s.bad {
		return false
	}
	if s.begun {
		s.skip(" \t")
		if len(s.rest) == 0 {
			return false
		}
		if !s.take(',') {
			return s.fail()
		}
		s.skip(" \t")
	} else if len(s.rest) == 0 {
		return false // an empty header is an empty list
	}
	s.begun = true
	s.item = unsetItem
	return s.readName() && s.readParameters()
}

func (s *rateLimitItems) fail() bool {
	s.bad = true
	return false
}

func (s *rateLimitItems) skip(set string) { s.rest = bytes.TrimLeft(s.rest, set) }

func (s *rateLimitItems) take(c byte) bool {
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// readName reads a string, a token, or a key with a value.
func (s *rateLimitItems) readName() bool {
	if len(s.rest) == 0 {
		return s.fail()
	}
	if s.rest[0] == '"' {
		quoted, ok := s.quoted()
		s.item.name = quoted
		return ok
	}
	if c := s.rest[0] | 0x20; c < 'a' || c > 'z' {
		return s.fail()
	}
	s.item.name = s.word()
	if s.take('=') {
		s.item.dictionary = true
		n, ok := s.bare()
		s.item.value = n
		return ok
	}
	return true
}

// readParameters reads ;key and ;key=value; the last of equal keys counts.
func (s *rateLimitItems) readParameters() bool {
	for s.take(';') {
		s.skip(" ")
		if len(s.rest) == 0 || s.rest[0] != '*' && (s.rest[0] < 'a' || s.rest[0] > 'z') {
			return s.fail()
		}
		key, n := s.word(), int64(unset)
		if s.take('=') {
			var ok bool
			if n, ok = s.bare(); !ok {
				return false
			}
		}
		switch string(key) {
		case "q":
			s.item.q = n
		case "r":
			s.item.r = n
		case "t":
			s.item.t = n
		case "w":
			s.item.w = n
		}
	}
	return true
}

// word reads the characters of a key or token. It accepts those of both, so it also accepts a few
// invalid keys.
func (s *rateLimitItems) word() []byte {
	i := 0
	for i < len(s.rest) && (isTokenByte(s.rest[i]) || s.rest[i] == ':' || s.rest[i] == '/') {
		i++
	}
	w := s.rest[:i]
	s.rest = s.rest[i:]
	return w
}

func (s *rateLimitItems) quoted() ([]byte, bool) {
	b := s.rest[1:]
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			s.rest = b[i+1:]
			return b[:i], true
		case c == '\\':
			if i++; i == len(b) || b[i] != '"' && b[i] != '\\' {
				return nil, s.fail()
			}
		case c < ' ' || c > '~':
			return nil, s.fail()
		}
	}
	return nil, s.fail()
}

// bare reads a value: an integer of 0 or more returns its number, any other value unset.
func (s *rateLimitItems) bare() (int64, bool) {
	if len(s.rest) == 0 {
		return unset, s.fail()
	}
	switch c := s.rest[0]; {
	case c == '"':
		_, ok := s.quoted()
		return unset, ok
	case isDigit(c) || c == '-':
		return s.number()
	case c == ':':
		i := bytes.IndexByte(s.rest[1:], ':')
		if i < 0 {
			return unset, s.fail()
		}
		s.rest = s.rest[i+2:]
		return unset, true
	case c == '?':
		if len(s.rest) < 2 || s.rest[1] != '0' && s.rest[1] != '1' {
			return unset, s.fail()
		}
		s.rest = s.rest[2:]
		return unset, true
	case isTokenByte(c):
		s.word()
		return unset, true
	}
	return unset, s.fail()
}

// number reads an integer or decimal.
func (s *rateLimitItems) number() (int64, bool) {
	negative := s.take('-')
	i := 0
	for i < len(s.rest) && (isDigit(s.rest[i]) || s.rest[i] == '.') {
		i++
	}
	text := s.rest[:i]
	s.rest = s.rest[i:]
	n, ok := parseNumber(text)
	decimal := bytes.IndexByte(text, '.') >= 0
	if !ok || !decimal && i > maxDigits {
		return unset, s.fail()
	}
	if negative || decimal {
		return unset, true
	}
	return n.whole, true
}

// isTokenByte reports whether c may be in a token (RFC 9110 section 5.6.2).
func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c|0x20 && c|0x20 <= 'z', isDigit(c):
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
