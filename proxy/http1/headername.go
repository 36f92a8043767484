package http1

// HeaderName identifies a well-known header name, so that later steps compare one byte
// instead of a string.
type HeaderName uint8

// The known names. OtherHeader, the zero value, is every other name. The first group
// affects framing or the connection and is interpreted by Parse; it must stay first (see
// lastParsedName).
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
	FramingLookalike // Content_Length or Transfer_Encoding: CGI-like servers take them for the real ones

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
	ForwardedLookalike // one of the six above, X-Request-Id or a control header, spelled with underscores
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
	XStainlessRetryCount
	XStainlessTimeout
	XStainlessReadTimeout
	XShouldRetry

	Date
	Server
	RetryAfter
	Location
	Allow
	Age
	Expires
	Vary
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
	Traceparent
	Tracestate

	headerNameCount
)

const (
	lastParsedName = FramingLookalike
	controlPrefix  = "x-retryproxy-"
	longestName    = 40 // no known name is longer; a test checks it
)

// spelling is the usual spelling of each known name. Ids that stand for many names have "".
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
	XStainlessRetryCount: "X-Stainless-Retry-Count", XStainlessTimeout: "X-Stainless-Timeout", XStainlessReadTimeout: "X-Stainless-Read-Timeout",
	XShouldRetry: "X-Should-Retry",
	Date:         "Date", Server: "Server", RetryAfter: "Retry-After", Location: "Location", Allow: "Allow", Age: "Age", Expires: "Expires",
	Vary: "Vary", LastModified: "Last-Modified", CacheControl: "Cache-Control", Pragma: "Pragma",
	ContentType: "Content-Type", ContentEncoding: "Content-Encoding", ContentLanguage: "Content-Language",
	ContentLocation: "Content-Location", ContentRange: "Content-Range", Range: "Range", IfMatch: "If-Match",
	IfNoneMatch: "If-None-Match", IfModifiedSince: "If-Modified-Since", IfUnmodifiedSince: "If-Unmodified-Since", IfRange: "If-Range",
	Authorization: "Authorization", WWWAuthenticate: "WWW-Authenticate", AuthenticationInfo: "Authentication-Info",
	Cookie: "Cookie", SetCookie: "Set-Cookie",
	Accept: "Accept", AcceptEncoding: "Accept-Encoding", AcceptLanguage: "Accept-Language", UserAgent: "User-Agent",
	Referer: "Referer", Traceparent: "Traceparent", Tracestate: "Tracestate",
}

// String returns the usual spelling of the name, or "" for OtherHeader and for the ids that stand for many names.
func (n HeaderName) String() string {
	if n >= headerNameCount {
		return ""
	}
	return spelling[n]
}

// isParsed reports whether the name is of the first group. OtherHeader wraps to the
// maximum, so it is not.
func (n HeaderName) isParsed() bool { return n-1 < lastParsedName }

// IsControl reports whether the name begins with X-Retryproxy-: a header of ours, which is
// not trusted from unknown clients.
func (n HeaderName) IsControl() bool { return n >= XRetryproxyAttempt && n <= XRetryproxyOther }

// IsForwarding reports whether the header tells the upstream who the client was, or
// resembles one that does.
func (n HeaderName) IsForwarding() bool { return n >= XForwardedFor && n <= ForwardedLookalike }

// TrailerForbidden reports whether the header is not allowed in a trailer section: framing,
// routing, request modifiers, authentication, response control data and content description
// (RFC 9110 section 6.5.1), and our own control headers.
func (n HeaderName) TrailerForbidden() bool {
	switch {
	case n == OtherHeader, n == Server, n == Traceparent, n == Tracestate:
		return false
	}
	return true
}

// A lookup uses a small chained hash table over the length and three letters.
var (
	nameBucket [256]HeaderName
	nameNext   [headerNameCount]HeaderName
)

// nameLine is the start of a header line with a known name of at most 15 letters: the name
// in lower case and its colon, as two words of eight bytes. The second word ends with the
// colon; for a shorter name both words are the same. The bits of headAny and tailAny are
// ignored, and set in head and tail: 0x20 in a letter, and whole bytes after the colon. All
// other bits must be equal, so that CR, which is a hyphen without 0x20, does not match one.
type nameLine struct {
	head, headAny uint64
	tail, tailAny uint64
	tailAt        int // where the second word begins
	length        int // of the name
}

// nameLines maps each name to its line. All other names have one that never matches.
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

// begins reports whether the header line at b[i] begins with the name. It may return false
// for a name in the last eight bytes of b.
func (l *nameLine) begins(b []byte, i int) bool {
	at := i + l.tailAt
	return at+8 <= len(b) && word(b, i)|l.headAny == l.head && word(b, at)|l.tailAny == l.tail
}

// nameHash ignores the case of letters by setting 0x20, which is good enough for a hash. b
// is not empty.
func nameHash(b []byte) uint8 {
	l := len(b)
	return uint8(l)*53 + (b[0]|0x20)*7 + (b[l>>1]|0x20)*31 + (b[l-1]|0x20)*101
}

// LookupHeaderName returns the id of a header name, ignoring case. The cost does not grow
// with the number of known names. It does not allocate.
func LookupHeaderName(name []byte) HeaderName {
	if n := lookupExact(name); n != OtherHeader {
		return n
	}
	return lookupRelated(name)
}

// lookupExact returns the id of a name that has its own spelling.
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

// lookupRelated returns the id of a name without its own spelling that belongs to a group
// with an id.
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

// isOdd marks the bytes of a name other than letters, digits and hyphens, and some more
// that are invalid.
var isOdd = func() (odd [256]bool) {
	for c := range odd {
		odd[c] = c != '-' && !isAlnum(byte(c)) && c > ' ' && c < 0x7f
	}
	return odd
}()

// lookupLookalike treats `_`, `.` and every other isOdd byte as `-`. CGI, WSGI and PHP turn
// some or all of these into `_` when they convert header names to variables. Otherwise a
// client could bypass a rule for X-Forwarded-For with X_Forwarded_For, or one for
// Content-Length with Content.Length. It only distinguishes names for which that matters.
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
	case n.IsForwarding(), n.IsControl(), n == XRequestID:
		return ForwardedLookalike
	}
	return OtherHeader
}

// AreAlike reports whether some server takes the two names for the same: they differ at most in case
// and in the bytes that lookupLookalike treats as a hyphen.
func AreAlike(a, b []byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if lower[a[i]] != lower[b[i]] && !(isHyphen(a[i]) && isHyphen(b[i])) {
			return false
		}
	}
	return true
}

func isHyphen(c byte) bool { return c == '-' || isOdd[c] }

func copyHyphens(dst, name []byte) int {
	for i, c := range name {
		if isOdd[c] {
			c = '-'
		}
		dst[i] = c
	}
	return len(name)
}

// HeaderNameSet is the set of the known names in a header section, in one word. Most names
// looked for are absent, which it shows without a search. The last few names share their
// bits with the first few, so it may report an absent name as present, but never the
// reverse.
type HeaderNameSet uint64

// HeaderNamesOf returns the names of headers.
func HeaderNamesOf(headers []Header) HeaderNameSet {
	var s HeaderNameSet
	for i := range headers {
		s |= 1 << (headers[i].ID % 64)
	}
	return s
}

// Has reports whether id is in the set.
func (s HeaderNameSet) Has(id HeaderName) bool { return s>>(id%64)&1 != 0 }

// HasAny reports whether s and of have a name in common.
func (s HeaderNameSet) HasAny(of HeaderNameSet) bool { return s&of != 0 }
