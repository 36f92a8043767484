// Package forward writes the header sections that leave the proxy: what the upstream is
// told of a request, and the client of a response. It is pure: values in,
// bytes appended, no socket, no clock, no allocation where dst has room.
//
// For a request begin with RequestID and Deadline.Read, then call AppendRequestHeaders once,
// and Deadline.Append and AppendAttempt before every attempt, on the same bytes. For a response call
// AppendResponseHeaders, for interim ones AppendInformational. Bodies and trailers
// are package http1's.
//
// Everything that is not listed here goes through as it came: order, case of
// the name, value and duplicates. Only white space around a value is lost.
//
// # Fields that end here
//
// Connection and what belongs to it: Keep-Alive, Proxy-Connection,
// Transfer-Encoding, TE, Upgrade, HTTP2-Settings (RFC 9110 section 7.6.1). Written
// anew where they apply: the framing field, "TE: trailers" with "Connection: TE"
// (section 10.1.4), Upgrade with "Connection: upgrade" (section 7.8). Expect is
// AppendAttempt's. Trailer stays with a chunked body, whose trailers are forwarded.
//
// Proxy-Authorization, Proxy-Authenticate and Proxy-Authentication-Info: section
// 11.7 has them meant for the next proxy alone, credentials of which the upstream
// must not learn.
//
// Fields that Connection names, if this module does not know them. A field known
// to be for all recipients must not be named there (section 7.6.1); where it is,
// someone tries to take Authorization, Cookie, X-Forwarded-For or a cache
// directive off a request that another proxy put it on. So known ones stay. At
// most 64 names are looked at.
//
// Names with underscores that read as forwarding or control fields once a CGI-like
// server has turned them into variables (X_Forwarded_For).
//
// # Fields that are ours
//
// X-Forwarded-For and, by setting, Forwarded and Via become one field each, where
// the first one stood: what came, in order, and our element at the end.
// X-Forwarded-Proto and -Host are set when absent. From peers that are not in
// a configured set of trusted ones all forwarding fields are dropped first. A
// peer without address (a unix socket) adds nothing to X-Forwarded-For, where
// readers expect addresses only, and "for=unknown" to Forwarded (RFC 7239
// section 6.2). X-Forwarded-Prefix is not sent: upstreams that need their prefix
// have it in their own configuration, and one more believed field is one more to
// forge. X-Request-Id goes to the upstream only; a response carries the one that
// the upstream chose to send.
package forward

import (
	"net/netip"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// HostMode says which Host the upstream gets.
type HostMode uint8

// The modes of Host. Where the one asked for is empty the other one is sent, as
// HTTP/1.1 wants a Host.
const (
	HostAuto     HostMode = iota // the upstream's when the client used a name of ours or of loopback, else the client's
	HostPreserve                 // the client's
	HostUpstream                 // the upstream's
	HostName                     // Settings.HostName
)

// Settings say how the requests of one route are forwarded. They are read
// only, by any number of goroutines.
type Settings struct {
	Host         HostMode
	HostName     string   // for HostName: host[:port]
	UpstreamHost string   // host[:port] as it belongs into Host
	OwnHosts     []string // our own authorities, for HostAuto: host:port, or host for any port

	Forwarded bool   // append to Forwarded (RFC 7239)
	Via       string // our pseudonym (RFC 9110 section 7.6.3), "" for no Via

	Deadlines DeadlineSet // fields in which clients say how long they wait; the upstream gets what is left of it

	OmitTrace bool // traceparent and tracestate are left out: they differ by attempt; see AppendClientTrace

	// StripPrefix is taken off the path: of "/api/x" by "/api" remains "/x",
	// of "/api" itself "/". Paths outside it stay. A slash at its end does
	// not matter. Ask route.Table.Ambiguous before: a path that an upstream
	// could read as leading out of the prefix must not come here.
	StripPrefix string
}

// Peer is who sent the request.
type Peer struct {
	Addr netip.Addr // not valid for a unix socket
	Text string     // Addr as text without zone; "" or "unix" for a unix socket
	// Trusted: one of the trusted proxies. TrustConfigured: such a set exists,
	// so forwarding fields from others are dropped.
	Trusted         bool
	TrustConfigured bool
	Secure          bool // https, else http

	rendered string // see Render
}

// Render keeps at hand what the header sections of nearly all requests of the peer have in
// common. Call it again when the peer has changed; without it the header sections are the
// same, at more cost. Text shares the memory.
func (p *Peer) Render() {
	var buf [128]byte
	p.rendered = string(append(p.appendHeaders(buf[:0], true, true), forwardedHost...))
	if node := p.node(); node != "" {
		p.Text = p.rendered[len(forwardedFor)+2:][:len(node)]
	}
}

const (
	forwardedFor  = "X-Forwarded-For"
	forwardedHost = "X-Forwarded-Host: " // with it what Render keeps ends
)

// appendHeaders appends what is said of the peer where a client said nothing.
func (p *Peer) appendHeaders(dst []byte, node, proto bool) []byte {
	if text := p.node(); node && text != "" {
		dst = http1.AppendHeader(dst, forwardedFor, text)
	}
	if proto {
		dst = http1.AppendHeader(dst, "X-Forwarded-Proto", p.Proto())
	}
	return dst
}

// Proto is the scheme that the peer uses: "http" or "https".
func (p *Peer) Proto() string {
	if p.Secure {
		return "https"
	}
	return "http"
}

// IsBelieved reports whether fields about what was before the peer are believed and, as far as
// they say who the client is, kept: from trusted proxies and, while none are configured, from anyone.
func (p *Peer) IsBelieved() bool { return p.Trusted || !p.TrustConfigured }

// mayControl says that control fields (X-Retryproxy-*) are kept: from trusted
// proxies and, while none are configured, from this machine.
func (p *Peer) mayControl() bool {
	return p.Trusted || !p.TrustConfigured && p.Addr.IsLoopback()
}

// node gives the address for a list of addresses, "" when there is none.
func (p *Peer) node() string {
	if p.Text == "unix" {
		return ""
	}
	return p.Text
}

// Trust is a set of addresses. The zero value is empty. It is read only and
// safe for concurrent use.
type Trust struct{ prefixes []netip.Prefix }

// NewTrust makes the set of all addresses in the prefixes. IPv4 addresses in
// IPv6 notation are the IPv4 addresses. Prefixes that are not valid hold none.
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

// Trusted says whether the set has the address. The zone does not matter.
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
