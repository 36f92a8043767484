package http1

import (
	"bytes"
	"unicode/utf8"
)

// Form is the form of a request target (RFC 9112 section 3.2). The authority form is not
// included: it belongs to CONNECT.
type Form uint8

// The forms of a request target.
const (
	Origin   Form = iota // /path?query
	Absolute             // http://authority/path?query
	Asterisk             // *, for OPTIONS
)

// String returns "origin", "absolute" or "asterisk".
func (f Form) String() string {
	switch f {
	case Origin:
		return "origin"
	case Absolute:
		return "absolute"
	case Asterisk:
		return "asterisk"
	}
	return "unknown"
}

// Shared by all requests. The capacity equals the length so that an append cannot write
// into them.
var (
	rootPath     = []byte("/")[:1:1]
	asteriskPath = []byte("*")[:1:1]
)

// isTarget marks the bytes allowed in a request target: those of RFC 3986 section 2, and
// others that clients send unescaped and that every reader treats alike: " < > \ ^ ` { | },
// brackets outside a host, and raw UTF-8 (see utf8OK). Not allowed are control bytes, space
// and # (a fragment is never sent).
var isTarget [256]bool

// isHost marks the bytes of a host that is not an IPv6 address. It is narrower than
// reg-name of RFC 3986 section 3.2.2, which allows sub-delims and escapes: DNS names have
// neither, and lists or quotes in Host suggest an attack.
var isHost [256]bool

func init() {
	for c := 0x21; c < 0x100; c++ {
		isTarget[c] = c != 0x7f && c != '#'
	}
	for c := 0x21; c < 0x7f; c++ {
		isHost[c] = isAlnum(byte(c)) || c == '-' || c == '.' || c == '_' || c == '~'
	}
}

// readTarget splits r.Target, whose bytes are all in isTarget. It sets Form, Scheme, Path,
// Query and HasQuery, and for the absolute form Authority.
func (r *Request) readTarget() Refusal {
	t := r.Target
	switch {
	case t[0] == '/':
		r.Form = Origin
	case len(t) == 1 && t[0] == '*':
		r.Form, r.Path = Asterisk, asteriskPath
		if string(r.Method) != "OPTIONS" {
			return RefusalBadTarget
		}
		return RefusalNone
	default:
		var why Refusal
		if t, why = r.readAbsolute(t); why != RefusalNone {
			return why
		}
	}
	if q := bytes.IndexByte(t, '?'); q >= 0 {
		r.HasQuery = true
		r.Query = t[q+1:]
		t = t[:q:q]
	}
	if len(t) == 0 {
		t = r.emptyPath()
	}
	r.Path = t
	if bytes.IndexByte(t, '%') >= 0 && !escapesOK(t) {
		return RefusalBadTarget
	}
	return RefusalNone
}

// readAbsolute parses scheme://authority and returns the rest. It refuses schemes other
// than http and https, an empty host and userinfo (RFC 9110 sections 4.2.1 and 4.2.4).
func (r *Request) readAbsolute(t []byte) (rest []byte, why Refusal) {
	n := 0
	switch {
	case len(t) > 7 && EqualFold(t[:7], "http://"):
		n = 4
	case len(t) > 8 && EqualFold(t[:8], "https://"):
		n = 5
	default:
		return nil, RefusalBadTarget
	}
	r.Form, r.Scheme = Absolute, t[:n:n]
	t = t[n+3:]
	end := 0
	for end < len(t) && t[end] != '/' && t[end] != '?' {
		end++
	}
	r.Authority = t[:end:end]
	if !validAuthority(r.Authority) {
		return nil, RefusalBadTarget
	}
	return t[end:], RefusalNone
}

// emptyPath returns the path of an absolute form without one: "*" for OPTIONS without query
// (RFC 9112 section 3.2.4), else "/".
func (r *Request) emptyPath() []byte {
	if !r.HasQuery && string(r.Method) == "OPTIONS" {
		return asteriskPath
	}
	return rootPath
}

// escapesOK reports whether every % begins an escape of two hexadecimal digits (RFC 3986
// section 2.1). It is used for paths only: queries with a lone % are common, and nothing
// here decodes them.
func escapesOK(path []byte) bool {
	for i := 0; i < len(path); i++ {
		if path[i] != '%' {
			continue
		}
		if i+2 >= len(path) || hexValue(path[i+1]) < 0 || hexValue(path[i+2]) < 0 {
			return false
		}
		i += 2
	}
	return true
}

// utf8OK reports whether target is UTF-8 without C1 control characters. Readers disagree
// about other bytes, above all overlong forms.
func utf8OK(target []byte) bool {
	for len(target) > 0 {
		c, n := utf8.DecodeRune(target)
		if c == utf8.RuneError && n == 1 || c >= 0x80 && c < 0xa0 {
			return false
		}
		target = target[n:]
	}
	return true
}

// validAuthority reports whether b is host[":" port] (RFC 9112 section 3.2) with a
// non-empty host and without userinfo. The port may be empty, as the grammar allows, and is
// at most 65535.
func validAuthority(b []byte) bool {
	if len(b) > 0 && b[0] == '[' {
		end := bytes.IndexByte(b, ']')
		return end > 0 && validIPv6(b[1:end]) && validPort(b[end+1:])
	}
	i := 0
	for i < len(b) && isHost[b[i]] {
		i++
	}
	return i > 0 && validPort(b[i:])
}

// validPort reports whether b is empty or ":" followed by digits.
func validPort(b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if b[0] != ':' {
		return false
	}
	port := 0
	for _, c := range b[1:] {
		if port = port*10 + int(c-'0'); !isDigit(c) || port > 65535 {
			return false
		}
	}
	return true
}

// validIPv6 reports whether b is an IPv6 address without zone (RFC 3986 section 3.2.2):
// eight groups of up to four hexadecimal digits, one run of groups shortened to "::", the
// last two groups possibly an IPv4 address.
func validIPv6(b []byte) bool {
	groups, shortened := 0, false
	if len(b) >= 2 && b[0] == ':' && b[1] == ':' {
		shortened, b = true, b[2:]
	}
	for len(b) > 0 {
		n := 0
		for n < len(b) && hexValue(b[n]) >= 0 {
			n++
		}
		if n < len(b) && b[n] == '.' {
			groups += 2
			return validIPv4(b) && enoughGroups(groups, shortened)
		}
		if n == 0 || n > 4 {
			return false
		}
		groups++
		if b = b[n:]; len(b) == 0 {
			break
		}
		if b[0] != ':' || len(b) == 1 {
			return false
		}
		if b = b[1:]; b[0] == ':' {
			if shortened {
				return false
			}
			shortened, b = true, b[1:]
		}
	}
	return enoughGroups(groups, shortened)
}

// enoughGroups checks the number of groups; "::" stands for at least one.
func enoughGroups(groups int, shortened bool) bool {
	if shortened {
		return groups < 8
	}
	return groups == 8
}

// validIPv4 reports whether b is four numbers from 0 to 255 without leading zeros, joined by dots.
func validIPv4(b []byte) bool {
	for part := range 4 {
		n := 0
		for n < len(b) && isDigit(b[n]) {
			n++
		}
		v, ok := ParseUint(b[:n])
		if !ok || v > 255 || n > 1 && b[0] == '0' {
			return false
		}
		b = b[n:]
		if part == 3 {
			break
		}
		if len(b) == 0 || b[0] != '.' {
			return false
		}
		b = b[1:]
	}
	return len(b) == 0
}
