package retryafter

import (
	"bytes"
	"strings"
	"time"
)

// structured returns the longest wait of the headers RateLimit and RateLimit-Policy. A header that
// is malformed anywhere is ignored (RFC 9651 section 4.2).
func (h *Headers) structured() (longest time.Duration, told bool) {
	var older dictionary
	for _, line := range h.current.all() {
		s := rateLimitItems{rest: trimSpace(line)}
		for s.next() {
			m := &s.item
			if m.dictionary {
				older.note(m)
				continue
			}
			if m.r != 0 {
				continue
			}
			seconds := m.t
			if seconds < 0 {
				seconds = h.window(m.name)
			}
			if seconds >= 0 {
				longest, told = max(longest, secondsToDuration(seconds)), true
			}
		}
		if s.bad {
			return 0, false
		}
	}
	if !told && older.remaining == 0 && older.seen == seenBoth && older.reset >= 0 {
		return secondsToDuration(older.reset), true
	}
	return longest, told
}

// window returns w of the policy with that name; below 0 if it is unknown.
func (h *Headers) window(name []byte) int64 {
	w := int64(unset)
	for _, line := range h.rules.all() {
		s := rateLimitItems{rest: trimSpace(line)}
		for s.next() {
			if bytes.Equal(s.item.name, name) {
				w = s.item.w
			}
		}
		if s.bad {
			return unset
		}
	}
	return w
}

// dictionary is the content of a header in draft -07.
type dictionary struct {
	remaining, reset int64
	seen             uint8
}

const seenBoth = 3

func (d *dictionary) note(m *rateLimitItem) {
	switch string(m.name) {
	case "remaining":
		d.remaining, d.seen = m.value, d.seen|1
	case "reset":
		d.reset, d.seen = m.value, d.seen|2
	}
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
	q, r, t, w int64
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
	s.item = rateLimitItem{value: unset, q: unset, r: unset, t: unset, w: unset}
	return s.readName() && s.readParameters()
}

func (s *rateLimitItems) fail() bool {
	s.bad = true
	return false
}

func (s *rateLimitItems) skip(set string) {
	for len(s.rest) > 0 && (s.rest[0] == set[0] || len(set) > 1 && s.rest[0] == set[1]) {
		s.rest = s.rest[1:]
	}
}

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
	n, _, ok := parseDecimal(text)
	if !ok {
		return unset, s.fail()
	}
	if negative || bytes.IndexByte(text, '.') >= 0 {
		return unset, true
	}
	return n, true
}

// isTokenByte reports whether c may be in a token (RFC 9110 section 5.6.2).
func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c|0x20 && c|0x20 <= 'z', isDigit(c):
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}
