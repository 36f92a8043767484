package http1

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Byte classes, filled once. isToken: tchar of RFC 9110 section 5.6.2. lower: ASCII letters folded, all else unchanged.
var (
	isToken [256]bool
	lower   [256]byte
)

func init() {
	for c := range 256 {
		b := byte(c)
		lower[c] = b
		if 'A' <= b && b <= 'Z' {
			lower[c] = b + 'a' - 'A'
		}
		isToken[c] = isAlnum(b)
	}
	for _, c := range []byte("!#$%&'*+-.^_`|~") {
		isToken[c] = true
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isAlnum(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' }

// hexValue is the value of a hexadecimal digit, or -1.
func hexValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return int(c|0x20-'a') + 10
	}
	return -1
}

// EqualFold reports whether b and s are equal when ASCII letters are compared without case. Other bytes compare as they are;
// no Unicode folding, which would make one name of two. No allocation.
func EqualFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i, c := range b {
		if lower[c] != lower[s[i]] {
			return false
		}
	}
	return true
}

// EqualFoldBytes is EqualFold for two byte slices.
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

// ParseUint reads decimal digits and nothing else: no sign, space, underscore or empty string. ok is false as well when the
// value is above 2^63-1. Leading zeros are digits. No allocation.
func ParseUint(b []byte) (v int64, ok bool) {
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		if !isDigit(c) {
			return 0, false
		}
		d := int64(c - '0')
		if v > (math.MaxInt64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// TrimOWS cuts spaces and tabs off both ends (OWS, RFC 9110 section 5.6.3).
func TrimOWS(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// NextToken cuts the first element off a comma-separated list (RFC 9110 section 5.6.1), without the white space around it.
// Empty elements are skipped. At the end element is nil. Elements are not checked to be tokens, and a comma inside a quoted
// string counts as a separator: use it for lists of tokens such as Connection, TE or Upgrade.
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

// HasToken reports whether the comma-separated list has the given element, whatever its case.
func HasToken(list []byte, token string) bool {
	for e, rest := NextToken(list); e != nil; e, rest = NextToken(rest) {
		if EqualFold(e, token) {
			return true
		}
	}
	return false
}

const (
	lows  = 0x0101010101010101
	highs = 0x8080808080808080
)

// controlAt is the index of the first control byte other than HTAB in b[i:], or len(b). It looks at eight bytes at a time:
// a byte below 0x20 borrows from its high bit when 0x20 is taken away, and 0x7f becomes zero under XOR. A borrow can mark a byte
// above a marked one wrongly, never the lowest one, so the lowest mark is exact.
func controlAt(b []byte, i int) int {
	for i+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[i:])
		del := w ^ (0x7f * lows)
		marks := ((w-0x20*lows)&^w | (del-lows)&^del) & highs
		if marks == 0 {
			i += 8
			continue
		}
		i += bits.TrailingZeros64(marks) >> 3
		if b[i] != '\t' {
			return i
		}
		i++
	}
	for i < len(b) && (b[i] >= 0x20 && b[i] != 0x7f || b[i] == '\t') {
		i++
	}
	return i
}
