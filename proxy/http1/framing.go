package http1

import "time"

// Kind says how the end of a body is found.
type Kind uint8

// The kinds of body.
const (
	BodyNone    Kind = iota // no body, and none announced
	BodyLength              // Content-Length bytes, which may be 0: an announced empty body is still announced
	BodyChunked             // the chunked coding; ends with the last chunk and the trailer section
	BodyClose               // ends when the connection does; responses only
)

// String is "none", "length", "chunked" or "close".
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
	}
	return "unknown"
}

// Framing is how a body is delimited (RFC 9112 section 6). Length is in bytes, >= 0, and 0 unless Kind is BodyLength.
type Framing struct {
	Kind   Kind
	Length int64
}

// Empty reports whether it is already known that no body byte follows the header section.
func (f Framing) Empty() bool { return f.Kind == BodyNone || f.Kind == BodyLength && f.Length == 0 }

// messageInfo is what the fields of a header section say about the message and its connection, gathered before anything is decided.
type messageInfo struct {
	length           int64 // last Content-Length; meaningful when lengths > 0
	lengths          int   // Content-Length fields seen
	badLength        bool
	leadingZero      bool // a Content-Length with leading zeros
	lengthsDiffer    bool // Content-Length fields differ
	codings          transferCodings
	close            bool // options named in Connection
	keepAlive        bool
	upgrade          bool
	hopByHopNames    bool
	upgradeTo        []byte        // first Upgrade value
	keepAliveTimeout time.Duration // Keep-Alive: timeout=
	keepAliveZero    bool
}

// addHeader takes in one field of the group up to lastParsedName.
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
	if s.addOption(v) { // one option, as nearly always, needs no list
		return
	}
	for e, rest := NextToken(v); e != nil; e, rest = NextToken(rest) {
		if !s.addOption(e) {
			s.hopByHopNames = true
		}
	}
}

// addOption takes in one connection option (RFC 9110 section 7.6.1), and is false when it has no meaning here.
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

// upgradeProtocol is the protocol asked for or agreed on: Upgrade counts only with Connection: upgrade and HTTP/1.1 (RFC 9110
// section 7.8). h2c is as if not asked for: RFC 9113 section 3.1 withdrew it, and a tunnel that speaks HTTP/2 would let
// requests past the routes.
func (s *messageInfo) upgradeProtocol(minor int) []byte {
	if minor == 0 || !s.upgrade || len(s.upgradeTo) == 0 || HasToken(s.upgradeTo, "h2c") {
		return nil
	}
	return s.upgradeTo
}

// checkFraming checks what requests and responses have in common (RFC 9112 sections 6.1 and 6.3): a transfer coding that is
// chunked alone, never in HTTP/1.0 and never beside Content-Length; and a well-formed Content-Length.
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
	case s.lengthsDiffer, s.leadingZero && s.lengths > 1: // repeated ones have to be equal to the byte
		return RefusalDifferingContentLength
	}
	return RefusalNone
}

// transferCodings is what all Transfer-Encoding fields of a header section say together.
type transferCodings struct {
	seen      bool
	malformed bool // an element that is not a plain token
	chunked   int  // how many times chunked is named
	others    int
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
		}
	}
}

// check: chunked once, alone. Where chunked is not the last coding the length is unknowable and the response has to be 400
// (RFC 9112 section 6.3 rule 4), which goes before the 501 of section 6.1 for codings that are not implemented.
func (c *transferCodings) check() Refusal {
	switch {
	case c.malformed, c.chunked != 1, !c.last:
		return RefusalBadTransferEncoding
	case c.others > 0:
		return RefusalUnknownTransferEncoding
	}
	return RefusalNone
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
