package http1

import "bytes"

// Name identifies a well-known field name, so that later steps compare one byte instead of a string.
type Name uint8

// The known names. NameOther, the zero value, is every other name. The first group has a meaning for framing or for the
// connection and is read by Parse itself; keep it first (see lastSemantic).
const (
	NameOther Name = iota

	Connection
	KeepAlive
	TransferEncoding
	ContentLength
	Host
	Expect
	Upgrade
	TE
	FramingTwin // Content_Length or Transfer_Encoding: what CGI-like servers take for the real ones

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
	ForwardedTwin // one of the six above, or a control field, spelt with underscores
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

	nameCount
)

const (
	lastSemantic  = FramingTwin
	controlPrefix = "x-retryproxy-"
	longestName   = 40 // no known name is longer; a test holds it
)

// spelling is the usual way to write each known name. Names without one of their own have "".
var spelling = [nameCount]string{
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

// String is the usual spelling of the name, or "" for NameOther and for the ids that stand for many names.
func (n Name) String() string {
	if n >= nameCount {
		return ""
	}
	return spelling[n]
}

// HopByHop reports whether the field belongs to one connection and is never forwarded as it came (RFC 9110 section 7.6.1). Fields
// that Connection lists by name belong to one connection too; for those see ConnectionNames. Content-Length is not
// hop-by-hop, yet is better written anew with AppendFraming.
func (n Name) HopByHop() bool {
	switch n {
	case Connection, KeepAlive, ProxyConnection, TransferEncoding, TE, Trailer, Upgrade,
		ProxyAuthenticate, ProxyAuthenticationInfo, ProxyAuthorization, HTTP2Settings:
		return true
	}
	return false
}

// IsControl reports whether the name begins with X-Retryproxy-: a field of ours, not to be believed from strangers.
func (n Name) IsControl() bool { return n >= XRetryproxyAttempt && n <= XRetryproxyOther }

// IsForwarding reports whether the field tells the upstream who the caller was, or imitates one that does.
func (n Name) IsForwarding() bool { return n >= XForwardedFor && n <= ForwardedTwin }

// TrailerForbidden reports whether the field must not stand in a trailer section: framing, routing, request modifiers,
// authentication, response control data and content description (RFC 9110 section 6.5.1), and our own control fields.
func (n Name) TrailerForbidden() bool {
	switch {
	case n == NameOther, n == ETag, n == Server, n == Prefer, n == Traceparent, n == Tracestate:
		return false
	}
	return true
}

// A lookup goes through a small chained hash table over length and three letters.
var (
	nameBucket [256]Name
	nameNext   [nameCount]Name
)

func init() {
	for n := NameOther + 1; n < nameCount; n++ {
		if s := spelling[n]; s != "" {
			h := nameHash([]byte(s))
			nameNext[n], nameBucket[h] = nameBucket[h], n
		}
	}
}

func nameHash(b []byte) uint8 {
	l := len(b)
	return uint8(l)*53 + lower[b[0]]*7 + lower[b[l>>1]]*31 + lower[b[l-1]]*101
}

// LookupName finds the id of a field name, whatever its case. The cost does not grow with the number of known names. No allocation.
func LookupName(name []byte) Name {
	if len(name) == 0 {
		return NameOther
	}
	if n := lookupExact(name); n != NameOther {
		return n
	}
	if len(name) > len(controlPrefix) && EqualFold(name[:len(controlPrefix)], controlPrefix) {
		return XRetryproxyOther
	}
	if bytes.IndexByte(name, '_') >= 0 {
		return lookupTwin(name)
	}
	return NameOther
}

func lookupExact(name []byte) Name {
	for n := nameBucket[nameHash(name)]; n != NameOther; n = nameNext[n] {
		if s := spelling[n]; len(s) == len(name) && (string(name) == s || EqualFold(name, s)) {
			return n
		}
	}
	return NameOther
}

// lookupTwin reads `_` as `-`, as CGI, WSGI and PHP do when they turn field names into variables. A stranger could otherwise
// slip X_Forwarded_For past a rule for X-Forwarded-For. Only names where that matters are told apart.
func lookupTwin(name []byte) Name {
	var plain [longestName]byte
	if len(name) > len(plain) {
		if EqualFold(plain[:copyHyphens(plain[:], name[:len(controlPrefix)])], controlPrefix) {
			return ForwardedTwin
		}
		return NameOther
	}
	switch n := LookupName(plain[:copyHyphens(plain[:], name)]); {
	case n == ContentLength, n == TransferEncoding:
		return FramingTwin
	case n.IsForwarding(), n.IsControl():
		return ForwardedTwin
	}
	return NameOther
}

func copyHyphens(dst, name []byte) int {
	for i, c := range name {
		if c == '_' {
			c = '-'
		}
		dst[i] = c
	}
	return len(name)
}
