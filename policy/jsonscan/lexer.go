package jsonscan

import "unicode/utf8"

// skipString reads the plain bytes of a string.
func (s *Scanner) skipString(b []byte) int {
	for i, c := range b {
		if c == '"' || c == '\\' || c < ' ' {
			return i
		}
		if s.record {
			s.endHigh()
			s.keep(c)
		}
	}
	return len(b)
}

// readString processes a byte of a string that is not plain.
func (s *Scanner) readString(c byte) bool {
	switch {
	case c == '\\':
		s.step = inEscape
		return false
	case c != '"':
		return s.fail()
	}
	s.endHigh()
	if !s.isKey {
		s.endScalar()
		return false
	}
	s.step, s.key = beforeColon, 0
	if s.record && !s.tooLong {
		s.key = s.names(s.idAt(s.depth), s.text[:s.n])
	}
	return false
}

// escapes maps the characters after a backslash, except u.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// readEscape processes the character after a backslash.
func (s *Scanner) readEscape(c byte) bool {
	if c == 'u' {
		s.step, s.hex, s.hexLeft = inHex, 0, 4
		return false
	}
	if escapes[c] == 0 {
		return s.fail()
	}
	s.endHigh()
	s.keep(escapes[c])
	s.step = inString
	return false
}

// readHex processes a digit of \u.
func (s *Scanner) readHex(c byte) bool {
	switch {
	case '0' <= c && c <= '9':
		c -= '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		c = c | 0x20 - 'a' + 10
	default:
		return s.fail()
	}
	s.hex = s.hex<<4 | rune(c)
	if s.hexLeft--; s.hexLeft == 0 {
		s.step = inString
		s.endEscape(s.hex)
	}
	return false
}

const (
	highFirst, lowFirst, lowEnd = 0xd800, 0xdc00, 0xe000
	beyondBase                  = 0x10000
)

// endEscape keeps the character of a \u, or half of a surrogate pair.
func (s *Scanner) endEscape(r rune) {
	switch {
	case r >= lowFirst && r < lowEnd && s.high != 0:
		s.keepRune((s.high-highFirst)<<10 + r - lowFirst + beyondBase)
		s.high = 0
		return
	case r >= highFirst && r < lowFirst:
		s.endHigh()
		s.high = r
		return
	}
	s.endHigh()
	s.keepRune(r)
}

// endHigh keeps the replacement for half of a pair.
func (s *Scanner) endHigh() {
	if s.high != 0 {
		s.high = 0
		s.keepRune(utf8.RuneError)
	}
}

// keepRune adds a character to the text; half of a pair becomes utf8.RuneError.
func (s *Scanner) keepRune(r rune) {
	var buf [utf8.UTFMax]byte
	for _, c := range buf[:utf8.EncodeRune(buf[:], r)] {
		s.keep(c)
	}
}

// beginNumber processes the first byte of a number.
func (s *Scanner) beginNumber(c byte) bool {
	switch {
	case c == '-':
		s.step = afterMinus
	case c == '0':
		s.step = afterZero
	case '1' <= c && c <= '9':
		s.step = inInteger
	default:
		return s.fail()
	}
	s.reading = Number
	s.keep(c)
	return false
}

// readNumber processes a byte that may belong to a number. It returns true if the byte follows it.
func (s *Scanner) readNumber(c byte) (again bool) {
	next, digit := s.step, '0' <= c && c <= '9'
	switch s.step {
	case afterMinus:
		return s.afterMinus(c)
	case afterPoint, inFraction:
		next = inFraction
	case afterE, afterESign, inExponent:
		next = inExponent
		if s.step == afterE && (c == '+' || c == '-') {
			s.step = afterESign
			s.keep(c)
			return false
		}
	case afterZero:
		digit = false
	}
	switch {
	case digit:
		s.step = next
	case c == '.' && (s.step == afterZero || s.step == inInteger):
		s.step = afterPoint
	case c|0x20 == 'e' && (s.step == afterZero || s.step == inInteger || s.step == inFraction):
		s.step = afterE
	case s.step == afterPoint || s.step == afterE || s.step == afterESign:
		return s.fail()
	default:
		s.endScalar()
		return true
	}
	s.keep(c)
	return false
}

func (s *Scanner) afterMinus(c byte) bool {
	if c == '-' {
		return s.fail()
	}
	return s.beginNumber(c)
}
