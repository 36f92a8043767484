package http1

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Byte classes, filled by init. isToken: tchar of RFC 9110 section 5.6.2. isControl: the
// control bytes except HTAB, the only one allowed in a header value or phrase (RFC 9110
// section 5.5). lower: ASCII letters in lower case, all other bytes unchanged.
var (
	isToken   [256]bool
	isControl [256]bool
	lower     [256]byte
)

func init() {
	for c := range 256 {
		b := byte(c)
		lower[c] = b
		if 'A' <= b && b <= 'Z' {
			lower[c] = b + 'a' - 'A'
		}
		isToken[c] = isAlnum(b)
		isControl[c] = b < 0x20 && b != '\t' || b == 0x7f
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		isToken[c] = true
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

// hexValue returns the value of a hexadecimal digit, or -1.
func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// EqualFold reports whether b and s are equal, ignoring the case of ASCII letters. It does
// no Unicode folding, which would make different names equal. It does not allocate.
func EqualFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	if string(b) == s { // the usual case
		return true
	}
	for i, c := range b {
		if lower[c] != lower[s[i]] {
			return false
		}
	}
	return true
}

// EqualFoldBytes is like EqualFold for two byte slices.
func EqualFoldBytes(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if lower[c] != lower[b[i]] {
			return false
		}
	}
	return true
}

// ParseUint parses decimal digits and nothing else: no sign, space, underscore or empty
// string. ok is also false if the value is above 2^63-1. Leading zeros are allowed. It does
// not allocate.
func ParseUint(b []byte) (v int64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	var u uint64 // fits one digit more than v
	for _, c := range b {
		if !isDigit(c) || u > math.MaxInt64/10 {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	if u > math.MaxInt64 {
		return 0, false
	}
	return int64(u), true
}

// TrimOWS removes spaces and tabs at both ends (OWS, RFC 9110 section 5.6.3).
func TrimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// NextToken returns the first element of a comma-separated list (RFC 9110 section 5.6.1), without the
// white space around it, and the rest of the list. It skips empty elements. At the end element is nil.
// It does not check that elements are tokens, and a comma inside a quoted string is a separator. Use
// it for lists of tokens such as Connection, TE or Upgrade.
//
//	for e, rest := NextToken(v); e != nil; e, rest = NextToken(rest) { ... }
func NextToken(list []byte) (element, rest []byte) {
	for len(list) > 0 {
		end := len(list)
		for i, c := range list {
			if c == ',' {
				end = i
				break
			}
		}
		element, rest = TrimOWS(list[:end]), list[min(end+1, len(list)):]
		if len(element) > 0 {
			return element, rest
		}
		list = rest
	}
	return nil, nil
}

// HasToken reports whether the comma-separated list has the given element, ignoring case.
func HasToken(list []byte, token string) bool {
	for e, rest := NextToken(list); e != nil; e, rest = NextToken(rest) {
		if EqualFold(e, token) {
			return true
		}
	}
	return false
}

// Spans are searched eight bytes at a time. A word holds them little-endian, so its lowest
// mark, the high bit of a byte, belongs to the first byte found. A borrow or carry can
// wrongly mark a byte above a marked one. Each search starts with max(i, 0): that changes
// nothing, but proves to the compiler that all indexes are in bounds.
const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// word returns b[i] to b[i+7]. With the explicit capacity the slice expression costs
// nothing.
func word(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8 : i+8]) }

// controlAt returns the index of the first isControl byte in b[i:], or len(b). Subtracting
// 0x20 borrows from the high bit of a byte below 0x20; adding 1 to 0x7f carries into it.
// HTAB is marked as well, and 0x7e above 0xff, so from the first mark on the table decides
// byte by byte.
func controlAt(b []byte, i int) int {
	for i = max(i, 0); i <= len(b)-8; i += 8 {
		w := word(b, i)
		if marks := ((w - 0x20*lows) | (w + lows)) &^ w & highs; marks != 0 {
			i += bits.TrailingZeros64(marks) >> 3
			break
		}
	}
	for i < len(b) && !isControl[b[i]] {
		i++
	}
	return i
}

// colonAt returns the index of the first colon in b[i:], or len(b). XOR turns a colon into
// zero, which borrows when 1 is subtracted.
func colonAt(b []byte, i int) int {
	for i = max(i, 0); i <= len(b)-8; i += 8 {
		w := word(b, i) ^ ':'*lows
		if marks := (w - lows) &^ w & highs; marks != 0 {
			return i + bits.TrailingZeros64(marks)>>3
		}
	}
	for i < len(b) && b[i] != ':' {
		i++
	}
	return i
}

// targetEnd returns the index of the first byte in b[i:] that is not in isTarget, or
// len(b). ascii reports whether all bytes before it are below 0x80. Marked are bytes below
// 0x21 and 0x7f as in controlAt, all from 0x80 on, and #. From the first mark on the table
// decides.
func targetEnd(b []byte, i int) (end int, ascii bool) {
	for i = max(i, 0); i <= len(b)-8; i += 8 {
		w := word(b, i)
		edges := (w - 0x21*lows) | (w + lows)
		hashes := w ^ '#'*lows
		if marks := (edges | (hashes-lows)&^hashes) & highs; marks != 0 {
			i += bits.TrailingZeros64(marks) >> 3
			break
		}
	}
	seen := byte(0)
	for i < len(b) && isTarget[b[i]] {
		seen |= b[i]
		i++
	}
	return i, seen < 0x80
}

// tokenEnd returns the index of the first byte in b[i:] that cannot be part of a token, or
// len(b).
func tokenEnd(b []byte, i int) int {
	for i < len(b) && isToken[b[i]] {
		i++
	}
	return i
}
