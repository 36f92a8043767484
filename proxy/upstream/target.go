package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/godebug"
)

// DefaultDialTimeout limits a dial if GetOptions.DialTimeout is 0. It is long enough for one lost SYN
// (resent after 1 s, RFC 6298 section 2.1) and a second one, and short enough that a retry
// still fits the usual request timeout of 30 s.
const DefaultDialTimeout = 3 * time.Second

// MinEvidence is how long a dial or an attempt must have lasted to show anything about the upstream
// if its caller's own deadline ended it: until then one lost SYN explains the silence (RFC 6298
// section 2.1).
const MinEvidence = time.Second

// maxUnixPath is the maximum length of a unix socket's path in bytes: sun_path has 108 on
// Linux, including the terminating zero.
const maxUnixPath = 107

// Target is where and how to connect. It is plain data: copy it freely, but do not change
// what it points to once a Pool has it. The zero value is no target; use ParseTarget or set
// Network and Address.
type Target struct {
	Network string // "tcp" or "unix"
	Address string // "host:port" (IPv6 in brackets), the socket's path, or with SRV the service's name

	// SRV means that Address is a name with SRV records (RFC 2782), which contain hosts,
	// ports, priorities and weights.
	SRV bool

	// MoreTargets are the other targets of a list, without MoreTargets of their own, of the
	// same scheme. Their Dial, Resolve and DNS are ignored.
	MoreTargets []Target

	// Host is the value of a Host header for this upstream: "host" or "host:port", without
	// the port if it is the scheme's own, and without a trailing dot; "localhost" for a
	// unix socket. Each target of a list has its own.
	Host string

	// BasePath is prepended to the path of every request, such as "/v2"; "" for nothing. It is in
	// normal form and does not end with a slash. It is not part of Key.
	BasePath string

	// Protocol is the HTTP version to use. HTTP2 and Negotiated are for TCP.
	Protocol Protocol

	// TLS is the client configuration, nil for plain text. It must have a ServerName. All
	// handshakes share it and never change it.
	TLS *tls.Config

	// Dial replaces net.Dialer; for tests. It gets each resolved address, or Address itself
	// if Resolve is nil (then nothing is resolved).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Resolve replaces the system's resolver; for tests. It returns no TTL, and is not used
	// for SRV records.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	// DNS is a server, "ip:port", used in place of those in /etc/resolv.conf; for tests.
	DNS string

	tlsKey     string      // identifies the settings that TLS was made from
	clientCert *clientCert // nil without a client certificate
}

// parseOne parses one target for ParseTarget.
func parseOne(s string) (Target, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return parseUnix(s, path)
	}
	if _, err := strconv.ParseUint(s, 10, 16); err == nil {
		return Target{}, fmt.Errorf("upstream %q: only a port; did you mean http://localhost:%[1]s?", s)
	}
	if isBareHost(s) {
		return Target{}, fmt.Errorf("upstream %q: the scheme is missing; did you mean http://%[1]s?", s)
	}
	u, err := url.Parse(s)
	switch {
	case s == "":
		return Target{}, errors.New(`upstream "": an address is empty`)
	case err != nil && !strings.Contains(s, "@") && strings.Contains(err.Error(), "invalid port"):
		return Target{}, fmt.Errorf("upstream %q: the port is not a number", s)
	case err != nil: // not shown, since it may hold a password
		return Target{}, fmt.Errorf("upstream %q: is not a URL", redact(s))
	}
	plain, srv := strings.CutSuffix(u.Scheme, "+srv")
	if u.Scheme = plain; schemes[plain].port == "" {
		return Target{}, fmt.Errorf("upstream %q: the scheme is not http, https, h2c or h2", redact(s))
	}
	if u.Opaque != "" {
		return Target{}, fmt.Errorf("upstream %q: // is missing after the scheme", redact(s))
	}
	if schemes[plain].protocol == HTTP2 && godebug.Off(godebug.HTTP2Client) {
		return Target{}, fmt.Errorf("upstream %q: %s is HTTP/2, which GODEBUG=%s=0 turns off", redact(s), plain, godebug.HTTP2Client)
	}
	if err := checkURL(s, u); err != nil {
		return Target{}, fmt.Errorf("upstream %q: %w", redact(s), err)
	}
	base := strings.TrimSuffix(u.EscapedPath(), "/")
	if !srv {
		t := tcpTarget(u)
		t.BasePath = base
		return t, nil
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil || u.Port() != "" {
		return Target{}, fmt.Errorf("upstream %q: SRV records need a name and contain the port: write %s+srv://_http._tcp.name", redact(s), plain)
	}
	t := srvTarget(u)
	t.BasePath = base
	return t, nil
}

// isBareHost reports whether s is a host, with or without a port, and nothing else.
func isBareHost(s string) bool {
	host, port, _ := strings.Cut(s, ":")
	return host != "" && strings.Trim(port, "0123456789") == "" &&
		strings.Trim(strings.ToLower(host), "abcdefghijklmnopqrstuvwxyz0123456789.-") == ""
}

// schemes maps URL schemes to their properties.
var schemes = map[string]struct {
	port     string
	protocol Protocol
	secure   bool
}{
	"http":  {"80", HTTP1, false},
	"https": {"443", Negotiated, true},
	"h2c":   {"80", HTTP2, false},
	"h2":    {"443", HTTP2, true},
}

// redact hides the part before an "@", since it may be a password.
func redact(s string) string {
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return s
	}
	scheme, _, ok := strings.Cut(s[:at], "://")
	if !ok {
		return "***" + s[at:]
	}
	return scheme + "://***" + s[at:]
}

func parseUnix(s, path string) (Target, error) {
	path = strings.TrimPrefix(path, "//") // unix:///path, with an empty authority
	switch {
	case !strings.HasPrefix(path, "/") || path == "/":
		return Target{}, fmt.Errorf("upstream %q: the path of a unix socket must be absolute, as in unix:/run/app.sock", s)
	case strings.IndexByte(path, 0) >= 0:
		return Target{}, fmt.Errorf("upstream %q: the path has a zero byte", s)
	case len(path) > maxUnixPath:
		return Target{}, fmt.Errorf("upstream %q: the path has %d bytes, a unix socket allows %d", s, len(path), maxUnixPath)
	}
	return Target{Network: "unix", Address: path, Host: "localhost"}, nil
}

func checkURL(s string, u *url.URL) error {
	switch {
	case u.User != nil:
		return errors.New("a user and a password are not allowed in the URL; put an Authorization header into the file of RETRYPROXY_REQUEST_HEADERS_FILE")
	case u.RawQuery != "" || u.ForceQuery:
		return errors.New("a query is not allowed: an upstream has only scheme, host, port and path")
	case strings.ContainsRune(s, '#'):
		return errors.New("a fragment (#) is not allowed: an upstream has only scheme, host, port and path")
	case !isBasePath(u.EscapedPath()):
		return fmt.Errorf("the path %q must be made of segments of letters, digits, \"-\", \"_\", \"~\" and dots, such as /v1.2/api", u.EscapedPath())
	case u.Hostname() == "":
		return errors.New("the host is missing")
	case strings.HasSuffix(u.Host, ":"):
		return errors.New("the port is missing after the colon")
	}
	if err := checkHost(u.Hostname()); err != nil {
		return err
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("the port %s is not within 1 to 65535", p)
		}
	}
	return nil
}

// isBasePath reports whether a path may be prepended to that of every request: it has one reading.
func isBasePath(path string) bool {
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return true
	}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if strings.Trim(segment, ".") == "" || strings.ContainsFunc(segment, func(r rune) bool { return notHostRune(r) && r != '.' && r != '~' }) {
			return false
		}
	}
	return true
}

// checkHost accepts an IP address or a DNS name of letters, digits, hyphens and underscores
// (RFC 1123 section 2.1, plus underscores, which are common).
func checkHost(h string) error {
	if _, err := netip.ParseAddr(h); err == nil {
		return nil
	}
	if len(h) > 254 {
		return errors.New("the host name is longer than 253 characters")
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(h, "."), ".") {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("host %q has a label that is empty or longer than 63 characters", h)
		}
		if i := strings.IndexFunc(label, notHostRune); i >= 0 {
			return fmt.Errorf("host %q has a character that no host name has (write international names in their xn-- form)", h)
		}
	}
	return nil
}

func notHostRune(r rune) bool {
	return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
}

func tcpTarget(u *url.URL) Target {
	host := u.Hostname()
	shown, _, zoned := strings.Cut(host, "%") // a zone (RFC 4007) is only valid on this machine
	if !zoned {
		host = strings.ToLower(host)
		shown = strings.TrimSuffix(host, ".")
	}
	scheme := schemes[u.Scheme]
	own := scheme.port
	port := u.Port()
	if port == "" {
		port = own
	}
	port = strings.TrimLeft(port, "0")
	t := Target{Network: "tcp", Address: net.JoinHostPort(host, port), Protocol: scheme.protocol}
	if t.Protocol == Negotiated && godebug.Off(godebug.HTTP2Client) {
		t.Protocol = HTTP1
	}
	t.Host = net.JoinHostPort(shown, port)
	if port == own {
		t.Host = strings.TrimSuffix(t.Host, ":"+port)
	}
	if scheme.secure {
		t.TLS = baseTLS(shown, t.Protocol)
		t.tlsKey = shown
	}
	return t
}

// srvTarget returns the target of a name with SRV records. Certificates and Host are those
// of the domain that offers the service. The hosts in its records could be forged on the
// network (RFC 6125 section 6.2.1).
func srvTarget(u *url.URL) Target {
	name := strings.ToLower(u.Hostname())
	domain := name
	for strings.HasPrefix(domain, "_") {
		_, rest, more := strings.Cut(domain, ".")
		if !more {
			break
		}
		domain = rest
	}
	t := tcpTarget(&url.URL{Scheme: u.Scheme, Host: domain})
	t.Address, t.SRV = name, true
	return t
}

// Key returns a string that is equal for targets that may share a pool: same network,
// address, protocol and TLS settings. The hooks Dial and Resolve are not part
// of it. A TLS configuration that did not come from this package only equals itself.
func (t Target) Key() string {
	id := ""
	if t.TLS != nil {
		if id = t.tlsKey; id == "" {
			id = fmt.Sprintf("%p", t.TLS)
		}
		id = "tls " + id
	}
	key := fmt.Sprintf("%s %q %t %d %q", t.Network, t.Address, t.SRV, t.Protocol, id)
	for i := range t.MoreTargets {
		key += ", " + t.MoreTargets[i].Key()
	}
	return key
}

// String returns the target as a URL, or several separated by commas, for logs and
// messages. It contains no secret.
func (t Target) String() string {
	all := t.url()
	for i := range t.MoreTargets {
		all += "," + t.MoreTargets[i].url()
	}
	return all
}

func (t *Target) url() string {
	if t.Network == "unix" {
		return "unix:" + t.Address
	}
	scheme := "http"
	switch {
	case t.TLS != nil && t.Protocol == HTTP2:
		scheme = "h2"
	case t.TLS != nil:
		scheme = "https"
	case t.Protocol == HTTP2:
		scheme = "h2c"
	}
	if t.SRV {
		scheme += "+srv"
	}
	return scheme + "://" + t.Address + t.BasePath
}

// Local reports whether every target of the upstream is on this machine by its name alone:
// a unix socket, a loopback address, "localhost" or a name below it (RFC 6761 section 6.3).
// It resolves nothing.
func (t Target) Local() bool {
	for i := range t.MoreTargets {
		if !t.MoreTargets[i].Local() {
			return false
		}
	}
	if t.Network == "unix" {
		return true
	}
	host, _, err := net.SplitHostPort(t.Address)
	if err != nil {
		host = t.Address // a name with SRV records
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// OneHost reports whether all targets of the upstream have the same Host.
func (t Target) OneHost() bool {
	return !slices.ContainsFunc(t.MoreTargets, func(o Target) bool { return o.Host != t.Host })
}

// OneAddress reports whether the target is one address, so that there is never a choice: not a list and
// not a name.
func (t Target) OneAddress() bool { return len(t.MoreTargets) == 0 && newSource(t).fixed }
