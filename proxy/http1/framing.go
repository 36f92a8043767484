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

// Empty reports whether it is already known that no body byte follows the head.
func (f Framing) Empty() bool { return f.Kind == BodyNone || f.Kind == BodyLength && f.Length == 0 }

// facts is what the fields of a head say about the message and its connection, gathered before anything is decided.
type facts struct {
	length     int64 // last Content-Length; meaningful when lengths > 0
	lengths    int   // Content-Length fields seen
	badLength  bool
	padded     bool // a Content-Length with leading zeros
	unequal    bool // Content-Length fields differ
	codings    codings
	close      bool // options named in Connection
	keepAlive  bool
	upgrade    bool
	otherNames bool
	upgradeTo  []byte        // first Upgrade value
	kept       time.Duration // Keep-Alive: timeout=
	keptZero   bool
}

// note takes in one field of the group up to lastSemantic.
func (s *facts) note(f *Field) {
	switch f.ID {
	case ContentLength:
		s.noteLength(f.Value)
	case TransferEncoding:
		s.codings.note(f.Value)
	case Connection:
		s.noteConnection(f.Value)
	case Upgrade:
		if s.upgradeTo == nil {
			s.upgradeTo = f.Value
		}
	}
}

func (s *facts) noteLength(v []byte) {
	n, ok := ParseUint(v)
	s.badLength = s.badLength || !ok
	s.padded = s.padded || len(v) > 1 && v[0] == '0'
	s.unequal = s.unequal || s.lengths > 0 && n != s.length
	s.length = n
	s.lengths++
}

func (s *facts) noteConnection(v []byte) {
	if s.noteOption(v) { // one option, as nearly always, needs no list
		return
	}
	for e, rest := NextToken(v); e != nil; e, rest = NextToken(rest) {
		if !s.noteOption(e) {
			s.otherNames = true
		}
	}
}

// noteOption takes in one connection option (RFC 9110 section 7.6.1), and is false when it has no meaning here.
func (s *facts) noteOption(option []byte) bool {
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

// closes reports whether the connection ends after the message (RFC 9112 section 9.3).
func (s *facts) closes(minor int) bool { return s.close || minor == 0 && !s.keepAlive }

// switchTo is the protocol asked for or agreed on: Upgrade counts only with Connection: upgrade and HTTP/1.1 (RFC 9110
// section 7.8). h2c is as if not asked for: RFC 9113 section 3.1 withdrew it, and a tunnel that speaks HTTP/2 would let
// requests past the routes.
func (s *facts) switchTo(minor int) []byte {
	if minor == 0 || !s.upgrade || len(s.upgradeTo) == 0 || HasToken(s.upgradeTo, "h2c") {
		return nil
	}
	return s.upgradeTo
}

// coded checks what requests and responses have in common (RFC 9112 sections 6.1 and 6.3): a transfer coding that is
// chunked alone, never in HTTP/1.0 and never beside Content-Length; and a well-formed Content-Length.
func (s *facts) coded(minor int) Refusal {
	switch {
	case s.codings.seen && s.lengths > 0:
		return RefusalCLWithTE
	case s.codings.seen && minor == 0:
		return RefusalTransferEncodingIn10
	case s.codings.seen:
		return s.codings.verdict()
	case s.badLength:
		return RefusalBadContentLength
	case s.unequal, s.padded && s.lengths > 1: // repeated ones have to be equal to the byte
		return RefusalRepeatedContentLength
	}
	return RefusalNone
}

// codings is what all Transfer-Encoding fields of a head say together.
type codings struct {
	seen      bool
	malformed bool // an element that is not a plain token
	chunked   int  // how many times chunked is named
	others    int
	last      bool // the last coding is chunked
}

func (c *codings) note(v []byte) {
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

// verdict: chunked once, alone. Where chunked is not the last coding the length is unknowable and the answer has to be 400
// (RFC 9112 section 6.3 rule 4), which goes before the 501 of section 6.1 for codings that are not implemented.
func (c *codings) verdict() Refusal {
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
