package route

import "bytes"

// Each step appends its result for path to dst. path and the result begin with "/".

// decodeUnreserved decodes letters, digits, "-", ".", "_" and "~" only (RFC 3986
// section 6.2.2.2).
func decodeUnreserved(dst, path []byte) []byte {
	for i := 0; i < len(path); {
		c, width := octet(path, i)
		if isAlnum(c) || c == '-' || c == '.' || c == '_' || c == '~' {
			dst = append(dst, c)
		} else {
			dst = append(dst, path[i:i+width]...)
		}
		i += width
	}
	return dst
}

// decodeAll decodes every percent-encoded octet, once.
func decodeAll(dst, path []byte) []byte {
	for i := 0; i < len(path); {
		c, width := octet(path, i)
		dst = append(dst, c)
		i += width
	}
	return dst
}

// replaceOverlong replaces ASCII characters in overlong UTF-8 with their plain form.
func replaceOverlong(dst, path []byte) []byte {
	for i := 0; i < len(path); {
		c, width := overlong(path, i)
		if width == 0 {
			c, width = path[i], 1
		}
		dst = append(dst, c)
		i += width
	}
	return dst
}

// replaceBackslashes replaces every backslash with a slash.
func replaceBackslashes(dst, path []byte) []byte {
	for _, c := range path {
		if c == '\\' {
			c = '/'
		}
		dst = append(dst, c)
	}
	return dst
}

// cutParams removes from each segment its first ";" and the rest of it.
func cutParams(dst, path []byte) []byte {
	in := false
	for _, c := range path {
		switch {
		case c == '/':
			in = false
		case c == ';':
			in = true
		}
		if !in {
			dst = append(dst, c)
		}
	}
	return dst
}

// cutAfterParam removes the first ";" and the rest of the path.
func cutAfterParam(dst, path []byte) []byte {
	before, _, _ := bytes.Cut(path, semicolon)
	return append(dst, before...)
}

var semicolon = []byte(";")

// cutAtQuery removes the first "?", "#" or zero and the rest of the path.
func cutAtQuery(dst, path []byte) []byte {
	if i := bytes.IndexAny(path, "?#\x00"); i >= 0 {
		path = path[:i]
	}
	return append(dst, path...)
}

// mergeSlashes merges adjacent slashes.
func mergeSlashes(dst, path []byte) []byte {
	for i, c := range path {
		if c == '/' && i > 0 && path[i-1] == '/' {
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// removeDots resolves "." and ".." segments (RFC 3986 section 5.2.4).
func removeDots(dst, path []byte) []byte {
	base := len(dst)
	for len(path) > 0 { // path begins with "/"
		n := dotSegment(path[1:])
		if n == 0 {
			end := bytes.IndexByte(path[1:], '/') + 1
			if end == 0 {
				end = len(path)
			}
			dst = append(dst, path[:end]...)
			path = path[end:]
			continue
		}
		if n == 2 {
			dst = dst[:base+max(bytes.LastIndexByte(dst[base:], '/'), 0)]
		}
		if path = path[1+n:]; len(path) == 0 {
			dst = append(dst, '/')
		}
	}
	return dst
}

// unhex maps a hexadecimal digit to its value, other bytes to -1.
var unhex = func() (t [256]int8) {
	for i := range t {
		t[i] = -1
	}
	for i := range int8(10) {
		t['0'+i] = i
	}
	for i := range int8(6) {
		t['a'+i], t['A'+i] = 10+i, 10+i
	}
	return t
}()

// octet returns the octet that begins at path[i], decoded if it is percent-encoded, and its
// width in path: 1 or 3. A "%" without two digits is returned as it is.
func octet(path []byte, i int) (c byte, width int) {
	if path[i] == '%' && i+2 < len(path) {
		hi, lo := unhex[path[i+1]], unhex[path[i+2]]
		if hi >= 0 && lo >= 0 {
			return byte(hi)<<4 | byte(lo), 3
		}
	}
	return path[i], 1
}

// decodeSegment decodes a segment into buf, and returns false if it does not fit.
func decodeSegment(buf, segment []byte) (decoded []byte, ok bool) {
	n := 0
	for i := 0; i < len(segment); n++ {
		if n == len(buf) {
			return nil, false
		}
		c, width := octet(segment, i)
		buf[n] = c
		i += width
	}
	return buf[:n], true
}

// overlong returns the ASCII character that begins at path[i] in overlong UTF-8 (RFC 3629
// section 10), each octet encoded or not, and the width of the sequence. The width is 0 if
// there is none.
func overlong(path []byte, i int) (c byte, width int) {
	lead, at := octet(path, i)
	switch {
	case lead == 0xc0 || lead == 0xc1: // 110xxxxx 10xxxxxx, six bits and one
		b, w := next(path, i+at, 0xbf)
		if w == 0 {
			return 0, 0
		}
		return lead<<6&0x40 | b&0x3f, at + w
	case lead == 0xe0:
		return overlongTail(path, i, at)
	case lead == 0xf0: // 11110000 10000000 1000000x 10xxxxxx
		_, w := next(path, i+at, 0x80)
		if w == 0 {
			return 0, 0
		}
		return overlongTail(path, i, at+w)
	}
	return 0, 0
}

// overlongTail reads 1000000x 10xxxxxx at path[i+at].
func overlongTail(path []byte, i, at int) (c byte, width int) {
	hi, w := next(path, i+at, 0x81)
	if w == 0 {
		return 0, 0
	}
	lo, v := next(path, i+at+w, 0xbf)
	if v == 0 {
		return 0, 0
	}
	return hi<<6&0x40 | lo&0x3f, at + w + v
}

// next reads a continuation octet from 0x80 to most; its width is 0 if there is none.
func next(path []byte, i int, most byte) (b byte, width int) {
	if i >= len(path) {
		return 0, 0
	}
	b, width = octet(path, i)
	if b < 0x80 || b > most {
		return 0, 0
	}
	return b, width
}
