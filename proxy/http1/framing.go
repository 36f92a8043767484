package http1

import (
	"strconv"
	"time"
)

// Kind is how the end of a body is determined.
type Kind uint8

// The kinds of body.
const (
	BodyNone    Kind = iota // no body, and none announced
	BodyLength              // Content-Length bytes, which may be 0: an empty body is announced too
	BodyChunked             // the chunked coding; ends with the last chunk and the trailer section
	BodyClose               // ends with the connection; responses of HTTP/1.1 only
	BodyStream              // HTTP/2: ends with its stream, after trailers if there are any
)

// String returns "none", "length", "chunked", "close" or "stream".
func (k Kind) String() string {
	switch k {
	case BodyNone:
		return "none"
	case BodyLength:
		return "length"
	case BodyChunked:
		return "chunked"
	case BodyClose:
		return "close"
	case BodyStream:
		return "stream"
	}
	return "unknown"
}

// Framing is how a body is delimited (RFC 9112 section 6). Length is in bytes: of BodyLength >= 0, of
// BodyStream the declared length, -1 without one, and otherwise 0.
type Framing struct {
	Kind   Kind
	Length int64
}

// HasTrailers reports whether trailers may follow the body.
func (f Framing) HasTrailers() bool { return f.Kind == BodyChunked || f.Kind == BodyStream }

// Empty reports whether it is already known that no body byte follows the header section.
func (f Framing) Empty() bool { return f.Kind == BodyNone || f.Kind == BodyLength && f.Length == 0 }

// messageInfo collects what the headers say about the message and its connection, before
// any decision.
type messageInfo struct {
	length           int64 // last Content-Length; valid if lengths > 0
	lengths          int   // number of Content-Length headers
	badLength        bool
	leadingZero      bool // a Content-Length with leading zeros
	lengthsDiffer    bool // Content-Length headers differ
	codings          transferCodings
	close            bool // options in Connection
	keepAlive        bool
	upgrade          bool
	hopByHopNames    bool
	upgradeTo        []byte        // first Upgrade value
	keepAliveTimeout time.Duration // Keep-Alive: timeout=
	keepAliveZero    bool
}

// addHeader processes one header of the group up to lastParsedName.
func (s *messageInfo) addHeader(f *Header) {
	switch f.ID {
	case ContentLength:
		s.addLength(f.Value)
	case TransferEncoding:
		s.codings.add(f.Value)
	case Connection:
		s.addConnection(f.Value)
	case Upgrade:
		if s.upgradeTo == nil {
			s.upgradeTo = f.Value
		}
	}
}

func (s *messageInfo) addLength(v []byte) {
	n, ok := ParseUint(v)
	s.badLength = s.badLength || !ok
	s.leadingZero = s.leadingZero || len(v) > 1 && v[0] == '0'
	s.lengthsDiffer = s.lengthsDiffer || s.lengths > 0 && n != s.length
	s.length = n
	s.lengths++
}

func (s *messageInfo) addConnection(v []byte) {
	if s.addOption(v) { // fast path: nearly always there is a single option
		return
	}
	for e, rest := NextToken(v); e != nil; e, rest = NextToken(rest) {
		if !s.addOption(e) {
			s.hopByHopNames = true
		}
	}
}

// addOption processes one connection option (RFC 9110 section 7.6.1), and returns false if
// it is not known.
func (s *messageInfo) addOption(option []byte) bool {
	switch {
	case EqualFold(option, "keep-alive"):
		s.keepAlive = true
	case EqualFold(option, "close"):
		s.close = true
	case EqualFold(option, "upgrade"):
		s.upgrade = true
	default:
		return false
	}
	return true
}

// closesConnection reports whether the connection ends after the message (RFC 9112 section 9.3).
func (s *messageInfo) closesConnection(minor int) bool { return s.close || minor == 0 && !s.keepAlive }

// upgradeProtocol returns the protocol requested or agreed on. Upgrade only counts with
// Connection: upgrade and HTTP/1.1 (RFC 9110 section 7.8). h2c is ignored: RFC 9113 section
// 3.1 withdrew it, and an HTTP/2 tunnel would let requests bypass the routes.
func (s *messageInfo) upgradeProtocol(minor int) []byte {
	if minor == 0 || !s.upgrade || len(s.upgradeTo) == 0 || HasToken(s.upgradeTo, "h2c") {
		return nil
	}
	return s.upgradeTo
}

// checkFraming checks what requests and responses have in common (RFC 9112 sections 6.1 and
// 6.3). A transfer coding must be chunked alone, not in HTTP/1.0 and not beside
// Content-Length. Content-Length must be well-formed.
func (s *messageInfo) checkFraming(minor int) Refusal {
	switch {
	case s.codings.seen && s.lengths > 0:
		return RefusalCLWithTE
	case s.codings.seen && minor == 0:
		return RefusalTransferEncodingIn10
	case s.codings.seen:
		return s.codings.check()
	case s.badLength:
		return RefusalBadContentLength
	case s.lengthsDiffer, s.leadingZero && s.lengths > 1: // repeated values must be equal byte by byte
		return RefusalDifferingContentLength
	}
	return RefusalNone
}

// transferCodings is the sum of all Transfer-Encoding headers of a header section.
type transferCodings struct {
	seen      bool
	malformed bool // an element that is not a plain token
	chunked   int  // how often chunked is named
	others    int
	unknown   bool // one of others is no coding that RFC 9112 names
	last      bool // the last coding is chunked
}

func (c *transferCodings) add(v []byte) {
	c.seen = true
	if EqualFold(v, "chunked") {
		c.chunked, c.last = c.chunked+1, true
		return
	}
	c.malformed = c.malformed || !isTokenList(v)
	for e, rest := NextToken(v); e != nil; e, rest = NextToken(rest) {
		c.last = EqualFold(e, "chunked")
		if c.last {
			c.chunked++
		} else {
			c.others++
			c.unknown = c.unknown || !isNamedCoding(e)
		}
	}
}

// check requires chunked once, alone. A coding that is not understood gets 501 (RFC 9112 section 6.1),
// wherever it stands: nobody knows whether it delimits the body. Of the codings with a name, those
// before chunked are not implemented, which is 501 too, and a list that does not end with chunked has
// no length, which is 400 (section 6.3 rule 4).
func (c *transferCodings) check() Refusal {
	switch {
	case c.malformed:
		return RefusalBadTransferEncoding
	case c.unknown:
		return RefusalUnknownTransferEncoding
	case c.chunked != 1, !c.last:
		return RefusalBadTransferEncoding
	case c.others > 0:
		return RefusalUnknownTransferEncoding
	}
	return RefusalNone
}

// isNamedCoding reports whether name is a transfer coding of RFC 9112 section 7, or identity, which
// RFC 2616 section 3.6 had.
func isNamedCoding(name []byte) bool {
	for _, known := range [...]string{"gzip", "deflate", "compress", "x-gzip", "x-compress", "identity"} {
		if EqualFold(name, known) {
			return true
		}
	}
	return false
}

// isTokenList reports whether v is token *( OWS "," OWS token ), without empty elements and parameters.
func isTokenList(v []byte) bool {
	for {
		i := 0
		for i < len(v) && isToken[v[i]] {
			i++
		}
		if i == 0 {
			return false
		}
		if v = TrimOWS(v[i:]); len(v) == 0 {
			return true
		}
		if v[0] != ',' {
			return false
		}
		v = TrimOWS(v[1:])
	}
}

// bytestring is the type of names and values for the Append functions. They write them
// unchanged: the caller must make sure that they contain no CR, LF or NUL. Everything that
// Parse returns satisfies this.
type bytestring interface{ ~[]byte | ~string }

// AppendHeader appends `name: value CRLF`.
func AppendHeader[N, V bytestring](dst []byte, name N, value V) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

// AppendIntHeader appends `name: n CRLF` with n in decimal.
func AppendIntHeader[N bytestring](dst []byte, name N, n int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	return append(appendInt(dst, n), "\r\n"...)
}

// appendInt appends n in decimal. Header sections contain short numbers, for which it costs
// half of strconv.AppendInt.
func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return strconv.AppendInt(dst, n, 10)
	}
	var digits [19]byte // of 2^63-1
	i := len(digits) - 1
	u := uint64(n)
	for ; u >= 10 && i > 0; i-- {
		digits[i] = byte('0' + u%10)
		u /= 10
	}
	digits[i] = byte('0' + u)
	return append(dst, digits[i:]...)
}

// AppendRequestLine appends `method SP target SP HTTP/1.1 CRLF`.
func AppendRequestLine[M, T bytestring](dst []byte, method M, target T) []byte {
	dst = append(dst, method...)
	dst = append(dst, ' ')
	dst = append(dst, target...)
	return append(dst, " HTTP/1.1\r\n"...)
}

// AppendStatusLine appends `HTTP/1.1 SP status SP phrase CRLF`. The space after the status
// stays if the phrase is empty (RFC 9112 section 4). status has three digits.
func AppendStatusLine[P bytestring](dst []byte, status int, phrase P) []byte {
	if status == 200 && string(phrase) == "OK" { // the usual case
		return append(dst, "HTTP/1.1 200 OK\r\n"...)
	}
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(appendInt(dst, int64(status)), ' ')
	dst = append(dst, phrase...)
	return append(dst, "\r\n"...)
}

// AppendFraming appends the framing header that f needs: Content-Length, Transfer-Encoding,
// or nothing for BodyNone and BodyClose.
func AppendFraming(dst []byte, f Framing) []byte {
	switch f.Kind {
	case BodyLength:
		dst = append(dst, "Content-Length: "...)
		return append(appendInt(dst, f.Length), "\r\n"...)
	case BodyChunked, BodyStream:
		return append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	return dst
}

// AppendChunkSize appends the line before a chunk of n bytes: n in hexadecimal and CRLF.
// After the n bytes append CRLF. n must be above 0, since 0 would end the body.
func AppendChunkSize(dst []byte, n int64) []byte {
	dst = strconv.AppendInt(dst, n, 16)
	return append(dst, "\r\n"...)
}

// AppendChunk appends data as one chunk. Empty data appends nothing, since an empty chunk would end the body.
func AppendChunk(dst, data []byte) []byte {
	if len(data) == 0 {
		return dst
	}
	dst = AppendChunkSize(dst, int64(len(data)))
	dst = append(dst, data...)
	return append(dst, "\r\n"...)
}

// AppendLastChunk appends the last chunk, the trailer section and the empty line that ends it (RFC 9112 section 7.1).
// Trailers may be nil.
func AppendLastChunk(dst []byte, trailers []Header) []byte {
	dst = append(dst, "0\r\n"...)
	for i := range trailers {
		dst = trailers[i].AppendLine(dst)
	}
	return append(dst, "\r\n"...)
}
