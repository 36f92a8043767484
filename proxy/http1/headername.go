package http1

// HeaderName identifies a well-known header name, so that later steps compare one byte instead of a string.
type HeaderName uint8

// The known names. OtherHeader, the zero value, is every other name. The first group has a meaning for framing or for the
// connection and is read by Parse itself; keep it first (see lastParsedName).
const (
	OtherHeader HeaderName = iota

	Connection
	KeepAlive
	TransferEncoding
	ContentLength
	Host
	Expect
	Upgrade
	TE
	FramingLookalike // Content_Length or Transfer_Encoding: what CGI-like servers take for the real ones

	ProxyConnection
	Trailer
	ProxyAuthenticate
	ProxyAuthenticationInfo
	ProxyAuthorization
	HTTP2Settings

	XForwardedFor
	XForwardedProto
	XForwardedHost
	XForwardedPort
	XRealIP
	Forwarded
	ForwardedLookalike // one of the six above, or a control field, spelt with underscores
	Via
	XRequestID
	MaxForwards
	IdempotencyKey

	XRetryproxyAttempt
	XRetryproxyAttempts
	XRetryproxyReason
	XRetryproxyOther // any other name that begins with X-Retryproxy-
	XEnvoyAttemptCount
	GRPCPreviousRPCAttempts
	XRequestTimeout
	GRPCTimeout
	XEnvoyExpectedTimeout

	Date
	Server
	RetryAfter
	Location
	Allow
	Age
	Expires
	Vary
	Warning
	ETag
	LastModified
	CacheControl
	Pragma

	ContentType
	ContentEncoding
	ContentLanguage
	ContentLocation
	ContentRange
	Range
	IfMatch
	IfNoneMatch
	IfModifiedSince
	IfUnmodifiedSince
	IfRange

	Authorization
	WWWAuthenticate
	AuthenticationInfo
	Cookie
	SetCookie

	Accept
	AcceptEncoding
	AcceptLanguage
	UserAgent
	Referer
	Prefer
	Traceparent
	Tracestate

	headerNameCount
)

const (
	lastParsedName = FramingLookalike
	controlPrefix  = "x-retryproxy-"
	longestName    = 40 // no known name is longer; a test holds it
)

// spelling is the usual way to write each known name. Names without one of their own have "".
var spelling = [headerNameCount]string{
	Connection: "Connection", KeepAlive: "Keep-Alive", TransferEncoding: "Transfer-Encoding", ContentLength: "Content-Length",
	Host: "Host", Expect: "Expect", Upgrade: "Upgrade", TE: "TE",
	ProxyConnection: "Proxy-Connection", Trailer: "Trailer", ProxyAuthenticate: "Proxy-Authenticate",
	ProxyAuthenticationInfo: "Proxy-Authentication-Info", ProxyAuthorization: "Proxy-Authorization", HTTP2Settings: "HTTP2-Settings",
	XForwardedFor: "X-Forwarded-For", XForwardedProto: "X-Forwarded-Proto", XForwardedHost: "X-Forwarded-Host",
	XForwardedPort: "X-Forwarded-Port", XRealIP: "X-Real-IP", Forwarded: "Forwarded", Via: "Via", XRequestID: "X-Request-Id",
	MaxForwards: "Max-Forwards", IdempotencyKey: "Idempotency-Key",
	XRetryproxyAttempt: "X-Retryproxy-Attempt", XRetryproxyAttempts: "X-Retryproxy-Attempts", XRetryproxyReason: "X-Retryproxy-Reason",
	XEnvoyAttemptCount: "X-Envoy-Attempt-Count", GRPCPreviousRPCAttempts: "Grpc-Previous-Rpc-Attempts",
	XRequestTimeout: "X-Request-Timeout", GRPCTimeout: "Grpc-Timeout", XEnvoyExpectedTimeout: "X-Envoy-Expected-Rq-Timeout-Ms",
	Date: "Date", Server: "Server", RetryAfter: "Retry-After", Location: "Location", Allow: "Allow", Age: "Age", Expires: "Expires",
	Vary: "Vary", Warning: "Warning", ETag: "ETag", LastModified: "Last-Modified", CacheControl: "Cache-Control", Pragma: "Pragma",
	ContentType: "Content-Type", ContentEncoding: "Content-Encoding", ContentLanguage: "Content-Language",
	ContentLocation: "Content-Location", ContentRange: "Content-Range", Range: "Range", IfMatch: "If-Match",
	IfNoneMatch: "If-None-Match", IfModifiedSince: "If-Modified-Since", IfUnmodifiedSince: "If-Unmodified-Since", IfRange: "If-Range",
	Authorization: "Authorization", WWWAuthenticate: "WWW-Authenticate", AuthenticationInfo: "Authentication-Info",
	Cookie: "Cookie", SetCookie: "Set-Cookie",
	Accept: "Accept", AcceptEncoding: "Accept-Encoding", AcceptLanguage: "Accept-Language", UserAgent: "User-Agent",
	Referer: "Referer", Prefer: "Prefer", Traceparent: "Traceparent", Tracestate: "Tracestate",
}

// String is the usual spelling of the name, or "" for OtherHeader and for the ids that stand for many names.
func (n HeaderName) String() string {
	if n >= headerNameCount {
		return ""
	}
	return spelling[n]
}

// isParsed reports whether the name is of the first group. OtherHeader is not: it wraps to the top.
func (n HeaderName) isParsed() bool { return n-1 < lastParsedName }

// HopByHop reports whether the field belongs to one connection and is never forwarded as it came (RFC 9110 section 7.6.1). Fields
// that Connection lists by name belong to one connection too; for those see ListedInConnection. Content-Length is not
// hop-by-hop, yet is better written anew with AppendFraming.
func (n HeaderName) HopByHop() bool {
	switch n {
	case Connection, KeepAlive, ProxyConnection, TransferEncoding, TE, Trailer, Upgrade,
		ProxyAuthenticate, ProxyAuthenticationInfo, ProxyAuthorization, HTTP2Settings:
		return true
	}
	return false
}

// IsControl reports whether the name begins with X-Retryproxy-: a field of ours, not to be believed from strangers.
func (n HeaderName) IsControl() bool { return n >= XRetryproxyAttempt && n <= XRetryproxyOther }

// IsForwarding reports whether the field tells the upstream who the client was, or imitates one that does.
func (n HeaderName) IsForwarding() bool { return n >= XForwardedFor && n <= ForwardedLookalike }

// TrailerForbidden reports whether the field must not stand in a trailer section: framing, routing, request modifiers,
// authentication, response control data and content description (RFC 9110 section 6.5.1), and our own control fields.
func (n HeaderName) TrailerForbidden() bool {
	switch {
	case n == OtherHeader, n == ETag, n == Server, n == Prefer, n == Traceparent, n == Tracestate:
		return false
	}
	return true
}

// A lookup goes through a small chained hash table over length and three letters.
var (
	nameBucket [256]HeaderName
	nameNext   [headerNameCount]HeaderName
)

// nameLine is how a header line begins that has a known name of at most 15 letters: the name in lower case and its colon, as two words of eight
// bytes, the second of which ends with the colon. They are one and the same for a shorter name. The bits of headAny and tailAny are
// as they like and set in head and tail: 0x20 in a letter, and whole bytes behind the colon. All others have to be equal, so that CR, which is
// a hyphen without 0x20, does not pass for one.
type nameLine struct {
	head, headAny uint64
	tail, tailAny uint64
	tailAt        int // where the second word begins
	length        int // of the name
}

// nameLines has a line that never fits for all other names.
var nameLines [headerNameCount]nameLine

func init() {
	for n := range nameLines {
		nameLines[n] = nameLine{headAny: 1}
	}
	for n := OtherHeader + 1; n < headerNameCount; n++ {
		s := spelling[n]
		if s == "" {
			continue
		}
		h := nameHash([]byte(s))
		nameNext[n], nameBucket[h] = nameBucket[h], n
		if len(s) < 16 {
			nameLines[n] = newNameLine(s)
		}
	}
}

func newNameLine(name string) nameLine {
	l := nameLine{length: len(name), tailAt: max(len(name)+1-8, 0)}
	line, free := []byte(name+":"), make([]byte, len(name)+1)
	for i, c := range line {
		if isAlnum(c) && !isDigit(c) {
			line[i], free[i] = c|0x20, 0x20
		}
	}
	for len(line) < 8 {
		line, free = append(line, 0xff), append(free, 0xff)
	}
	l.head, l.headAny = word(line, 0), word(free, 0)
	l.tail, l.tailAny = word(line, l.tailAt), word(free, l.tailAt)
	return l
}

// begins reports whether the header line at b[i] begins with the name. It may be false for a name in the last eight bytes of b.
func (l *nameLine) begins(b []byte, i int) bool {
	at := i + l.tailAt
	return at+8 <= len(b) && word(b, i)|l.headAny == l.head && word(b, at)|l.tailAny == l.tail
}

// nameHash takes letters of both cases for the same by setting 0x20, which is coarse and good enough for a hash. b is not empty.
func nameHash(b []byte) uint8 {
	l := len(b)
	return uint8(l)*53 + (b[0]|0x20)*7 + (b[l>>1]|0x20)*31 + (b[l-1]|0x20)*101
}

// LookupHeaderName finds the id of a header name, whatever its case. The cost does not grow with the number of known names. No allocation.
func LookupHeaderName(name []byte) HeaderName {
	if n := lookupExact(name); n != OtherHeader {
		return n
	}
	return lookupRelated(name)
}

// lookupExact finds the id of a name that has a spelling of its own.
func lookupExact(name []byte) HeaderName {
	if len(name) == 0 {
		return OtherHeader
	}
	for n := nameBucket[nameHash(name)]; n != OtherHeader; n = nameNext[n] {
		if EqualFold(name, spelling[n]) {
			return n
		}
	}
	return OtherHeader
}

// lookupRelated finds the id of a name that has no spelling of its own but belongs to a group that has an id.
func lookupRelated(name []byte) HeaderName {
	if len(name) > len(controlPrefix) && lower[name[0]] == controlPrefix[0] && EqualFold(name[:len(controlPrefix)], controlPrefix) {
		return XRetryproxyOther
	}
	for _, c := range name {
		if isOdd[c] {
			return lookupLookalike(name)
		}
	}
	return OtherHeader
}

// isOdd marks what may stand in a name besides letters, digits and hyphens, and some more that may not.
var isOdd = func() (odd [256]bool) {
	for c := range odd {
		odd[c] = c != '-' && !isAlnum(byte(c)) && c > ' ' && c < 0x7f
	}
	return odd
}()

// lookupLookalike reads `_`, `.` and all else that is odd as `-`. CGI, WSGI and PHP make `_` of some or all of these when they turn
// header names into variables. A stranger could otherwise slip X_Forwarded_For past a rule for X-Forwarded-For, or Content.Length past
// one for Content-Length. Only names where that matters are told apart.
func lookupLookalike(name []byte) HeaderName {
	var plain [longestName]byte
	if len(name) > len(plain) {
		if EqualFold(plain[:copyHyphens(plain[:], name[:len(controlPrefix)])], controlPrefix) {
			return ForwardedLookalike
		}
		return OtherHeader
	}
	switch n := LookupHeaderName(plain[:copyHyphens(plain[:], name)]); {
	case n == ContentLength, n == TransferEncoding:
		return FramingLookalike
	case n.IsForwarding(), n.IsControl():
		return ForwardedLookalike
	}
	return OtherHeader
}

func copyHyphens(dst, name []byte) int {
	for i, c := range name {
		if isOdd[c] {
			c = '-'
		}
		dst[i] = c
	}
	return len(name)
}
