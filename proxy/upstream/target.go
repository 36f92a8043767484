package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/retryproxy/retryproxy/proxy/internal/godebug"
)

// DefaultDialTimeout is used where Target.DialTimeout is 0: long enough for one
// lost SYN (resent after 1 s, RFC 6298 section 2.1) and a second one, short
// enough that a retry still fits the usual request timeout of 30 s.
const DefaultDialTimeout = 3 * time.Second

// maxUnixPath is the longest path of a unix socket in bytes: sun_path has 108
// on Linux, the last one is the terminating zero.
const maxUnixPath = 107

// Target says where to connect and how. It is plain data: copy it freely, do
// not change what it points to once a Pool has it. The zero value is no target;
// use ParseTarget or fill Network and Address.
type Target struct {
	Network string // "tcp" or "unix"
	Address string // "host:port" (IPv6 in brackets), the socket's path, or with SRV the service's name

	// SRV: Address is a name with SRV records (RFC 2782), which tell hosts, ports, priorities and weights.
	SRV bool

	// MoreTargets are the other endpoints of a list: targets without an Also of their
	// own, of the same scheme. Their DialTimeout, Dial and Resolve are not looked at.
	MoreTargets []Target

	// Host is what belongs into a Host field for this upstream: "host" or
	// "host:port", the port ejected where it is the scheme's own, without
	// a trailing dot; "localhost" for a unix socket.
	Host string

	// Protocol is what is spoken. HTTP2 and Either are for TCP.
	Protocol Protocol

	// TLS is the client configuration, nil for plain text. ServerName must
	// be set in it. It is shared by all handshakes and never written.
	TLS *tls.Config

	// DialTimeout bounds resolving, connecting over all addresses and the
	// TLS handshake together; 0 means DefaultDialTimeout.
	DialTimeout time.Duration

	// Dial replaces net.Dialer; for tests. It is given each resolved address, or
	// Address itself when Resolve is nil (then nothing is resolved).
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Resolve replaces the system's resolver; for tests. It does not tell how
	// long its response holds, and is not asked for SRV records.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)

	// DNS is a server, "ip:port", that is asked in place of those in
	// /etc/resolv.conf; for tests.
	DNS string

	tlsKey     string      // names the settings TLS was made from
	clientCert *clientCert // nil without a client certificate
}

// parseOne reads one endpoint of what ParseTarget takes.
func parseOne(s string) (Target, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return parseUnix(s, path)
	}
	u, err := url.Parse(s)
	if err != nil || u.Opaque != "" {
		return Target{}, fmt.Errorf("upstream %q: %w", redact(s), errForm)
	}
	plain, srv := strings.CutSuffix(u.Scheme, "+srv")
	if u.Scheme = plain; schemes[plain].port == "" {
		return Target{}, fmt.Errorf("upstream %q: %w", redact(s), errForm)
	}
	if schemes[plain].protocol == HTTP2 && godebug.Off(godebug.HTTP2Client) {
		return Target{}, fmt.Errorf("upstream %q: %s is HTTP/2, which GODEBUG=%s=0 turns off", redact(s), plain, godebug.HTTP2Client)
	}
	if err := checkURL(s, u); err != nil {
		return Target{}, fmt.Errorf("upstream %q: %w", redact(s), err)
	}
	if !srv {
		return tcpTarget(u), nil
	}
	if _, err := netip.ParseAddr(u.Hostname()); err == nil || u.Port() != "" {
		return Target{}, fmt.Errorf("upstream %q: SRV records are those of a name, and they tell the port: write %s+srv://_http._tcp.name", redact(s), plain)
	}
	return srvTarget(u), nil
}

var errForm = errors.New("must be http://host[:port], https://host[:port], h2c://host[:port], h2://host[:port], one of these schemes with +srv://name, unix:/path, or several of one scheme with commas between")

// schemes of URLs, each with its own port.
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

// redact hides what stands before an "@", since it may be a password.
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
		return errors.New("user and password are not supported here")
	case u.RawQuery != "" || u.ForceQuery:
		return errors.New("a query is not supported: an upstream is only scheme, host and port")
	case strings.ContainsRune(s, '#'):
		return errors.New("a fragment is not supported: an upstream is only scheme, host and port")
	case u.Path != "" && u.Path != "/":
		return errors.New("a path is not supported: an upstream is only scheme, host and port")
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
			return fmt.Errorf("port %s is not in 1 to 65535", p)
		}
	}
	return nil
}

// checkHost accepts an IP address or a DNS name of letters, digits, hyphens and
// underscores (RFC 1123 section 2.1; underscores are not in it but are in use).
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
	shown, _, zoned := strings.Cut(host, "%") // a zone (RFC 4007) means something on this machine only
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

// srvTarget: certificates and Host are those of the domain that offers the
// service, not of the hosts that its records name, which anybody on the way
// could forge (RFC 6125 section 6.2.1).
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

// Key is equal for targets that may share a pool: same network, address,
// protocol, TLS settings and dial timeout. The hooks Dial and Resolve are not part of it. A
// TLS configuration that did not come from this package equals only itself.
func (t Target) Key() string {
	id := ""
	if t.TLS != nil {
		if id = t.tlsKey; id == "" {
			id = fmt.Sprintf("%p", t.TLS)
		}
		id = "tls " + id
	}
	key := fmt.Sprintf("%s %q %t %d %q %s", t.Network, t.Address, t.SRV, t.Protocol, id, t.dialTimeout())
	for i := range t.MoreTargets {
		key += ", " + t.MoreTargets[i].Key()
	}
	return key
}

// String gives the target as a URL, or several with commas between, for logs
// and messages. It holds no secret.
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
	return scheme + "://" + t.Address
}

// Local reports whether the upstream, each endpoint of a list, is on this machine by its name alone: a
// unix socket, a loopback address, "localhost" or a name below it (RFC 6761
// section 6.3). Nothing is resolved.
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
		host = t.Address // of SRV records
	}
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

func (t Target) dialTimeout() time.Duration {
	if t.DialTimeout <= 0 {
		return DefaultDialTimeout
	}
	return t.DialTimeout
}
