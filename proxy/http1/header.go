package http1

import (
	"bytes"
	"slices"
)

// Header is one header line as received: spans into the parsed buffer, the name in its
// original case, the value without the white space around it. It is valid as long as the
// buffer is unchanged. To change a header, make another one.
type Header struct {
	Name, Value []byte // in a parsed header, Name's capacity extends to the end of its line: see AppendLine
	ID          HeaderName
}

// AppendLine appends the same as AppendHeader. Most lines were received in that form and
// are copied in one piece, at a third of the cost.
func (f *Header) AppendLine(dst []byte) []byte {
	n := len(f.Name)
	line := f.Name[:cap(f.Name)]
	if len(line) != n+len(": ")+len(f.Value)+len("\r\n") || line[n+1] != ' ' {
		return AppendHeader(dst, f.Name, f.Value)
	}
	return append(dst, line...)
}

// NewHeader returns a header with its own bytes, for headers that were not parsed. It
// allocates.
func NewHeader(name, value string) Header {
	f := Header{Name: slices.Clip([]byte(name)), Value: []byte(value)}
	f.ID = LookupHeaderName(f.Name)
	return f
}

// Limits limits a header section. A zero field means its default.
type Limits struct {
	HeaderBytes int // start line, headers and the final empty line together; default DefaultHeaderBytes
	Headers     int // header lines; default DefaultHeaders
}

// Defaults of Limits, equal to the product's settings. RFC 9112 section 3 asks for at least
// 8000 bytes of request line.
const (
	DefaultHeaderBytes = 64 << 10
	DefaultHeaders     = 100
)

func (l Limits) orDefaults() Limits {
	if l.HeaderBytes <= 0 {
		l.HeaderBytes = DefaultHeaderBytes
	}
	if l.Headers <= 0 {
		l.Headers = DefaultHeaders
	}
	return l
}

// readHeaders parses header lines from b[i:] up to and including the empty line, and
// appends them to headers. next is the offset after the empty line; next == 0 without a
// refusal means that b ends before it. It also checks the bytes of an unfinished line, so
// that a refusal never waits for more bytes than needed.
//
// A peer tends to send the same headers in the same order. So it tries first the id that
// headers has at the same index from the previous header section.
func readHeaders(headers []Header, b []byte, i, limit int) (_ []Header, next int, why Refusal) {
	b = b[:len(b):len(b)]
	for i < len(b) && b[i] != '\r' {
		n := len(headers)
		if n >= limit {
			return headers, 0, RefusalTooManyHeaders
		}
		headers = slices.Grow(headers, 1)[:n+1]
		f := &headers[n]
		last := &nameLines[f.ID]
		colon := i + last.length
		if !last.begins(b, i) {
			if colon, why = f.readName(b, i); colon == 0 {
				return headers[:n], 0, why
			}
		}
		start := colon + 1
		for start < len(b) && (b[start] == ' ' || b[start] == '\t') {
			start++
		}
		end := controlAt(b, start)
		if end == len(b) {
			return headers[:n], 0, RefusalNone
		}
		if next, why = lineEnd(b, end); next == 0 {
			return headers[:n], 0, why
		}
		for end > start && (b[end-1] == ' ' || b[end-1] == '\t') {
			end--
		}
		f.Name, f.Value = b[i:colon:next], b[start:end:end]
		i = next
	}
	next = 0
	if i < len(b) {
		next, why = lineEnd(b, i)
	}
	return headers, next, why
}

// readHeadersLF is readHeaders for a response whose lines all end with LF alone, as some
// small servers send them. It refuses CRs: if both line ends occur in one header section,
// an LF may be part of a value from a third party.
func readHeadersLF(headers []Header, b []byte, i, limit int) (_ []Header, next int, why Refusal) {
	for {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return headers, 0, RefusalNone
		}
		line := b[i : i+n]
		if i += n + 1; n == 0 {
			return headers, i, RefusalNone
		}
		if len(headers) >= limit {
			return headers, 0, RefusalTooManyHeaders
		}
		f, why := readLineLF(line)
		if why != RefusalNone {
			return headers, 0, why
		}
		headers = append(headers, f)
	}
}

// readLineLF parses one such line, without its end.
func readLineLF(line []byte) (f Header, why Refusal) {
	if at := controlAt(line, 0); at < len(line) {
		if line[at] == '\r' {
			return f, RefusalBareLF
		}
		return f, RefusalControlByte
	}
	colon, why := f.readName(line, 0)
	switch {
	case why != RefusalNone:
		return f, why
	case colon == 0:
		return f, RefusalBadHeader
	}
	f.Name, f.Value = line[:colon:colon], slices.Clip(TrimOWS(line[colon+1:]))
	return f, RefusalNone
}

// readName finds the colon after the name that begins at b[i] (RFC 9112 section 5), and
// sets the id. colon is 0 if b ends before it or the name is refused. A known name is a
// token and needs no check. In all others each byte is checked, and the first one that is
// no token byte decides.
func (f *Header) readName(b []byte, i int) (colon int, why Refusal) {
	colon = colonAt(b, i)
	if f.ID = lookupExact(b[i:colon]); f.ID != OtherHeader && colon < len(b) {
		return colon, RefusalNone
	}
	if colon = tokenEnd(b, i); colon == len(b) {
		return 0, RefusalNone
	}
	if b[colon] != ':' || colon == i {
		return 0, badName(b, i, colon)
	}
	f.ID = lookupRelated(b[i:colon])
	return colon, RefusalNone
}

// badName returns why the byte at b[at], the first one that cannot be part of a header
// name, is refused.
func badName(b []byte, start, at int) Refusal {
	switch c := b[at]; {
	case (c == ' ' || c == '\t') && at == start:
		return RefusalObsFold
	case c == ' ' || c == '\t':
		return RefusalSpaceBeforeColon
	case c == '\r' && at+1 == len(b):
		return RefusalNone // a line without colon or a bare CR: the next byte decides
	case c == '\r' && b[at+1] == '\n':
		return RefusalBadHeader
	case c < 0x20, c == 0x7f:
		_, why := lineEnd(b, at)
		return why
	}
	return RefusalBadHeader
}

// lineEnd parses CRLF at b[i], where b[i] is a control byte. next is the offset after it,
// or 0 if b ends too early or it is refused.
func lineEnd(b []byte, i int) (next int, why Refusal) {
	switch {
	case b[i] == '\r' && i+1 < len(b) && b[i+1] == '\n':
		return i + 2, RefusalNone
	case b[i] == '\n':
		return 0, RefusalBareLF
	case b[i] != '\r':
		return 0, RefusalControlByte
	case i+1 < len(b):
		return 0, RefusalBareCR
	}
	return 0, RefusalNone
}

// clearHeaders clears the spans of all headers ever parsed, which are contiguous, and keeps
// the ids for readHeaders to try.
func clearHeaders(headers []Header) []Header {
	headers = headers[:cap(headers)]
	for i := 0; i < len(headers) && headers[i].Name != nil; i++ {
		headers[i].Name, headers[i].Value = nil, nil
	}
	return headers[:0]
}

// firstByID returns the value of the first header with the id, or nil. A present but empty
// value is not nil.
func firstByID(headers []Header, id HeaderName) []byte {
	for i := range headers {
		if headers[i].ID == id {
			return headers[i].Value
		}
	}
	return nil
}

func firstByName(headers []Header, name string) ([]byte, bool) {
	for i := range headers {
		if EqualFold(headers[i].Name, name) {
			return headers[i].Value, true
		}
	}
	return nil, false
}

func eachSpan(headers []Header, f func([]byte)) {
	for i := range headers {
		f(headers[i].Name)
		f(headers[i].Value)
	}
}

// headerProgress records, for an incomplete header section, how far it was searched for its
// end. Header sections are parsed from their start each time, which is the simplest correct
// way. To keep that linear in the bytes received, they are parsed again only when the end
// has arrived, or when there are twice as many bytes as at the last parse. In between each
// new byte is examined once. The state can only delay a parse, never change its result, so
// a missing Reset costs time but not correctness.
type headerProgress struct {
	searched   int32 // bytes without the end of a header section; 0 at its start
	lastParsed int32 // bytes available at the last full parse
}

// shouldParse reports whether buf should be parsed from its start now. Nearly every header
// section arrives at once and needs only this check.
func (p *headerProgress) shouldParse(buf []byte) bool {
	return p.searched == 0 || len(buf) < int(p.searched) || p.hasEndOrDoubled(buf)
}

// hasEndOrDoubled searches the new bytes. It reports whether they contain the end of a
// header section, or buf has doubled since the last parse.
func (p *headerProgress) hasEndOrDoubled(buf []byte) bool {
	for i := int(p.searched); i < len(buf); i++ {
		k := bytes.IndexByte(buf[i:], '\n')
		if k < 0 {
			break
		}
		i += k
		if i >= 1 && buf[i-1] == '\n' || i >= 2 && buf[i-1] == '\r' && buf[i-2] == '\n' {
			return true
		}
	}
	p.searched = int32(len(buf))
	return len(buf) >= 2*int(p.lastParsed)
}

// incomplete records that buf was parsed and contains no complete header section.
func (p *headerProgress) incomplete(buf []byte) {
	p.searched, p.lastParsed = int32(len(buf)), int32(len(buf))
}
