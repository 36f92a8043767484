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
