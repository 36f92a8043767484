// Package forward writes the header sections that the proxy sends: of requests to the
// upstream, and of responses to the client. It is pure: it takes values and appends bytes.
// It uses no socket and no clock, and does not allocate if dst has room.
//
// For a request begin with RequestID and Deadline.Read, then call AppendRequestHeaders
// once. Before every attempt call Deadline.Append and AppendAttempt on the same bytes, and AddHost
// if LacksHost says so. For
// a response call AppendResponseHeaders, for interim ones AppendInformational. Package
// http1 handles bodies and trailers.
//
// Everything that is not listed here is forwarded as received: order, case of the name,
// value and duplicates. Only white space around a value is lost.
//
// # Headers that are not forwarded
//
// Connection and what belongs to it: Keep-Alive, Proxy-Connection, Transfer-Encoding, TE,
// Upgrade, HTTP2-Settings (RFC 9110 section 7.6.1). The proxy writes its own where they
// apply: the framing header, "TE: trailers" with "Connection: TE" (section 10.1.4), Upgrade
// with "Connection: upgrade" (section 7.8). AppendAttempt writes Expect. Trailer is kept
// with a chunked body, whose trailers are forwarded.
//
// Proxy-Authorization, Proxy-Authenticate and Proxy-Authentication-Info: by section 11.7
// they are for the next proxy alone, and the upstream must not learn these credentials.
//
// Headers listed in Connection, if package http1 does not know them. A header known to be
// for all recipients must not be listed there (section 7.6.1). If it is, a client tries to
// remove Authorization, Cookie, X-Forwarded-For or a cache directive that another proxy
// set. So known ones are kept. At most 64 names are considered.
//
// Headers that the configuration removes or sets, see HeaderChanges.
//
// Names with underscores that resemble forwarding or control headers once a CGI-like server
// has turned them into variables (X_Forwarded_For).
//
// # Headers that the proxy writes
//
// X-Forwarded-For becomes one header, at the position of the first one: the received elements
// in order, and our element at the end. Forwarded and Via are forwarded as received.
// X-Forwarded-Proto and -Host are set if absent. If trusted proxies are configured, all
// forwarding headers from other peers are dropped first.
//
// A peer without address (a unix socket) adds nothing to X-Forwarded-For, where readers
// expect addresses only.
// X-Forwarded-Prefix is not sent: upstreams that need their prefix have it in their own
// configuration, and one more trusted header is one more to forge. X-Request-Id is sent to
// the upstream and to the client; a response keeps the one that the upstream sent, if any.
package forward

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/wire"
)

// HostRule is which Host header the upstream gets.
type HostRule struct {
	Mode HostMode
	Name string // host[:port] to send, whatever Mode is; "" for none
}

// String returns the rule as in settings.
func (h HostRule) String() string { return cmp.Or(h.Name, h.Mode.String()) }

// HostMode is the choice between the hosts that client and upstream have.
type HostMode uint8

// The modes of Host. If the chosen host is empty, the other one is sent, since HTTP/1.1
// requires a Host.
const (
	HostAuto     HostMode = iota // the upstream's if the client used a name of ours or of loopback, else the client's
	HostPreserve                 // the client's
	HostUpstream                 // the upstream's
)

// String returns the mode as in settings.
func (m HostMode) String() string { return [...]string{"auto", "preserve", "upstream"}[m] }

// Settings is how the requests of one route are forwarded. It must not change while in use;
// then it is safe for concurrent use.
type Settings struct {
	Host         HostRule
	UpstreamHost string   // host[:port] as in a Host header
	HostVaries   bool     // the endpoints of the upstream have different hosts: AddHost writes that of the chosen one, not UpstreamHost
	OwnHosts     []string // our own authorities, for HostAuto: host:port, or host for any port

	Changes HeaderChanges // of the configuration, for requests

	OmitTrace bool // leave out traceparent and tracestate, which differ by attempt; see AppendClientTrace

	// StripPrefix is removed from the path: "/api" turns "/api/x" into "/x", and "/api"
	// itself into "/". Other paths are unchanged. A slash at its end has no effect. Call
	// route.Table.Ambiguous first: a path that an upstream could resolve to outside the
	// prefix must not be passed to this package.
	StripPrefix string

	// BasePath is put before the path, after StripPrefix is removed; "" for nothing. The prefix itself
	// becomes BasePath without a slash. It is in normal
	// form and does not end with a slash. Call route.Climbs first: a path that an upstream could
	// resolve to outside must not be passed to this package.
	BasePath string
}

// Peer is the sender of the request.
type Peer struct {
	Addr netip.Addr // not valid for a unix socket
	Text string     // Addr as text without zone; "" or "unix" for a unix socket
	// Trusted means that it is a trusted proxy. TrustConfigured means that trusted proxies
	// are configured, so that forwarding headers from others are dropped.
	Trusted         bool
	TrustConfigured bool
	Secure          bool // https, else http
}

// appendHeaders appends the headers about the peer that the client did not send.
func (p *Peer) appendHeaders(form wire.Form, dst []byte, node, proto bool) []byte {
	if text := p.node(); node && text != "" {
		dst = wire.AppendHeader(form, dst, "X-Forwarded-For", text)
	}
	if proto {
		dst = wire.AppendHeader(form, dst, "X-Forwarded-Proto", p.Proto())
	}
	return dst
}

// Proto returns the scheme that the peer uses: "http" or "https".
func (p *Peer) Proto() string {
	if p.Secure {
		return "https"
	}
	return "http"
}

// IsBelieved reports whether forwarding headers from the peer are trusted and kept: from
// trusted proxies and, if none are configured, from any peer.
func (p *Peer) IsBelieved() bool { return p.Trusted || !p.TrustConfigured }

// mayControl reports whether control headers (X-Retryproxy-*) are kept: from trusted
// proxies and, if none are configured, from this machine.
func (p *Peer) mayControl() bool {
	return p.Trusted || !p.TrustConfigured && p.Addr.IsLoopback()
}

// node returns the address for a list of addresses, "" if there is none.
func (p *Peer) node() string {
	if p.Text == "unix" {
		return ""
	}
	return p.Text
}

// Trust is a set of addresses. The zero value is empty. It is immutable and safe for
// concurrent use.
type Trust struct{ prefixes []netip.Prefix }

// NewTrust returns the set of all addresses in the prefixes. IPv4-mapped IPv6 addresses
// count as IPv4 addresses. Invalid prefixes contain none.
func NewTrust(prefixes []netip.Prefix) Trust {
	var t Trust
	for _, p := range prefixes {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		t.prefixes = append(t.prefixes, p)
	}
	return t
}

// Trusted reports whether the set contains the address, ignoring its zone.
func (t Trust) Trusted(a netip.Addr) bool {
	if len(t.prefixes) == 0 {
		return false
	}
	a = a.Unmap().WithZone("")
	for _, p := range t.prefixes {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// Check returns an error that joins all problems of the settings: values that would break
// the headers they are written into, or could never apply.
func (s *Settings) Check() error {
	var errs []error
	for _, h := range []string{s.Host.Name, s.UpstreamHost} {
		if !isAuthority(h) {
			errs = append(errs, &SettingError{"Host", fmt.Errorf("host %q: not host[:port]", h)})
		}
	}
	if why := checkPrefix(s.StripPrefix); why != "" {
		errs = append(errs, &SettingError{"StripPrefix", fmt.Errorf("strip prefix %q: %s", s.StripPrefix, why)})
	}
	return errors.Join(errs...)
}

// SettingError names the field of Settings that is wrong. Check joins them.
type SettingError struct {
	Setting string
	Err     error
}

// Error returns the text of the cause, which quotes the value.
func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SettingError) Unwrap() error { return e.Err }

// isAuthority reports whether s is harmless in a header; "" is allowed, and the caller
// decides about it.
func isAuthority(s string) bool {
	for i := range len(s) {
		if !isAlnum(s[i]) && strings.IndexByte("-._~:[]", s[i]) < 0 {
			return false
		}
	}
	return true
}

// checkPrefix returns what is wrong with a prefix, or "". Dots, empty segments and
// parameters would make every path below it ambiguous.
func checkPrefix(prefix string) string {
	if prefix == "" {
		return ""
	}
	if prefix[0] != '/' {
		return `it must begin with "/"`
	}
	for i := range len(prefix) {
		if c := prefix[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"<>?#\;*`, c) >= 0 {
			return fmt.Sprintf("%q is not allowed in the prefix", string(rune(c)))
		}
	}
	lower := strings.ToLower(prefix)
	for _, code := range []string{"%2e", "%2f", "%5c", "%3b", "%25"} {
		if strings.Contains(lower, code) {
			return code + " is not allowed in the prefix"
		}
	}
	for segment := range strings.SplitSeq(strings.TrimRight(prefix[1:], "/"), "/") {
		if segment == "." || segment == ".." || segment == "" && prefix != "/" {
			return "the prefix has an empty segment, or one of dots only"
		}
	}
	return ""
}
