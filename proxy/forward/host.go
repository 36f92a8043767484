package forward

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// appendHost writes the Host for the upstream under the given name. The authority of an
// absolute-form target replaces the client's Host (RFC 9112 section 3.2.2).
func (w *requestWriter) appendHost(dst, name []byte) []byte {
	if w.form == wire.Block || w.s.HostVaries && w.sendsUpstreamHost() {
		return dst // a pseudo-header has it, or AddHost writes it
	}
	if string(name) == "Host" { // the usual case
		dst = append(dst, "Host: "...)
	} else {
		dst = append(append(dst, name...), ": "...)
	}
	return append(w.appendAuthority(dst), "\r\n"...)
}

func (w *requestWriter) appendAuthority(dst []byte) []byte {
	switch {
	case w.keepsClientHost():
		return append(dst, w.r.Authority...)
	case w.s.Host.Name != "":
		return append(dst, w.s.Host.Name...)
	}
	return append(dst, w.s.UpstreamHost...)
}

// AppendAuthority appends the Host of the request without its name, for a block. If LacksHost says so, it
// is that of the endpoint instead.
func AppendAuthority(dst []byte, r *http1.Request, s *Settings, p *Peer) []byte {
	w := requestWriter{r: r, s: s, p: p}
	return w.appendAuthority(dst)
}

// sendsUpstreamHost reports whether the upstream gets its own Host.
func (w *requestWriter) sendsUpstreamHost() bool {
	return w.s.Host.Name == "" && !w.keepsClientHost()
}

// LacksHost reports whether AppendRequestHeaders leaves out the Host of the request, because it is that of
// the endpoint that will be chosen.
func LacksHost(r *http1.Request, s *Settings, p *Peer) bool {
	w := requestWriter{r: r, s: s, p: p}
	return s.HostVaries && w.sendsUpstreamHost()
}

// AddHost adds a Host header to a complete header section.
func AddHost(section []byte, host string) []byte {
	section = append(section[:len(section)-len("\r\n")], "Host: "...)
	return append(append(section, host...), "\r\n\r\n"...)
}

// keepsClientHost reports whether the upstream gets the client's Host.
func (w *requestWriter) keepsClientHost() bool {
	authority := w.r.Authority
	if len(authority) == 0 || w.s.Host.Name != "" {
		return false
	}
	switch w.s.Host.Mode {
	case HostPreserve:
		return true
	case HostUpstream:
		return w.s.UpstreamHost == ""
	}
	return w.s.UpstreamHost == "" || !isLoopback(authority) && !isOwn(w.s.OwnHosts, authority, w.p.Secure)
}

// splitPort splits an authority into host and port, the port without colon.
func splitPort(authority []byte) (host, port []byte) {
	for i := len(authority) - 1; i >= 0; i-- { // from the end, since a port is short
		switch authority[i] {
		case ':':
			return authority[:i], authority[i+1:]
		case ']':
			return authority, nil
		}
	}
	return authority, nil
}

// isLoopback reports whether the authority is this machine, at any port: localhost and
// names below it (RFC 6761 section 6.3), 127.0.0.0/8 and ::1.
func isLoopback(authority []byte) bool {
	if n := len("localhost:"); len(authority) >= n && (string(authority[:n]) == "localhost:" || string(authority[:n]) == "127.0.0.1:") {
		return true // the usual spellings
	}
	switch authority[0] {
	case '1':
		return isLoopback4(authority)
	case '[':
		host, _ := splitPort(authority)
		return isLoopback6(bytes.Trim(host, "[]"))
	}
	host, _ := splitPort(authority)
	host = bytes.TrimSuffix(host, []byte("."))
	const name, below = "localhost", ".localhost"
	return http1.EqualFold(host, name) || len(host) > len(below) && http1.EqualFold(host[len(host)-len(below):], below)
}

// isLoopback4 reports whether the authority is in 127.0.0.0/8, including anything that
// resolvers might accept as such.
func isLoopback4(authority []byte) bool {
	const net = "127."
	if len(authority) < len(net) || string(authority[:len(net)]) != net {
		return false
	}
	host, _ := splitPort(authority)
	for _, c := range host[len(net):] {
		if !isIPv4Byte[c] {
			return false
		}
	}
	return true
}

// isIPv4Byte marks the bytes of an IPv4 address.
var isIPv4Byte = [256]bool{
	'0': true, '1': true, '2': true, '3': true, '4': true, '5': true, '6': true, '7': true, '8': true, '9': true, '.': true,
}

// isLoopback6 reports whether host is ::1 in any spelling, or a mapped address of
// 127.0.0.0/8 (RFC 4291 section 2.5.5.2). host must be an IPv6 address.
func isLoopback6(host []byte) bool {
	const mapped = "::ffff:127."
	if len(host) > len(mapped) && http1.EqualFold(host[:len(mapped)], mapped) {
		return true
	}
	n := len(host)
	return n > 0 && host[n-1] == '1' && len(bytes.Trim(host[:n-1], "0:")) == 0
}

// isOwn reports whether the authority is in own. A missing port is the scheme's; an entry
// without port matches all ports.
func isOwn(own []string, authority []byte, secure bool) bool {
	if len(own) == 0 {
		return false
	}
	host, port := splitPort(authority)
	if len(port) == 0 {
		port = []byte(defaultPort(secure))
	}
	for _, o := range own {
		name, number := cutPort(o)
		if http1.EqualFold(host, name) && (number == "" || string(port) == number) {
			return true
		}
	}
	return false
}

// IsHost reports whether the authority of a target with that scheme is host, which has the
// form of Settings.UpstreamHost. It ignores case, a final dot and the scheme's own port.
// The rest is compared as text, and nothing is resolved: another spelling of an address is
// another host.
func IsHost(authority, scheme []byte, host string) bool {
	name, port := splitPort(authority)
	if n := len(name); n > 1 && name[n-1] == '.' {
		name = name[:n-1]
	}
	if PortImplied(authority, scheme) {
		port = nil
	}
	want, wantPort := cutPort(host)
	return http1.EqualFold(name, want) && string(port) == wantPort
}

// PortImplied reports whether the authority has no port, or the scheme's own.
func PortImplied(authority, scheme []byte) bool {
	_, port := splitPort(authority)
	return len(port) == 0 || string(port) == defaultPort(http1.EqualFold(scheme, "https"))
}

// HasPort reports whether host contains a port.
func HasPort(host string) bool {
	_, port := cutPort(host)
	return port != ""
}

// defaultPort returns the default port of http, or of https if secure.
func defaultPort(secure bool) string {
	if secure {
		return "443"
	}
	return "80"
}

// cutPort is splitPort for configured names.
func cutPort(host string) (name, port string) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		return host[:i], host[i+1:]
	}
	return host, ""
}

// RandomIDLen is the length of a random id: 128 bits in hexadecimal.
const RandomIDLen = 32

// maxRequestID limits the length of a client's id, in bytes: it appears in every log line
// and is sent to the upstream.
const maxRequestID = 128

// isIDByte marks the bytes allowed in a client's id. They cover UUIDs, ULIDs, base64 in
// both alphabets, trace ids and "Root=1-...". They exclude every byte with a meaning in
// logs, shells, JSON, HTML or lists.
var isIDByte = func() (t [256]bool) {
	for c := range 256 {
		t[c] = isAlnum(byte(c))
	}
	for _, c := range []byte("-._~+/=:@|") {
		t[c] = true
	}
	return t
}()

// RequestID returns the id of the request. That is its first X-Request-Id, a span of the
// request, if it has 1 to 128 letters, digits and -._~+/=:@| alone. Otherwise it is a
// random id, appended to scratch. It does not allocate if scratch has room for RandomIDLen
// bytes.
func RequestID(r *http1.Request, scratch []byte) []byte {
	if id := r.Get(http1.XRequestID); isRequestID(id) {
		return id
	}
	return AppendRandomID(scratch)
}

func isRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > maxRequestID {
		return false
	}
	for _, c := range id {
		if !isIDByte[c] {
			return false
		}
	}
	return true
}

// AppendRandomID appends RandomIDLen hexadecimal digits: 128 random bits from the runtime's
// ChaCha8 generators, seeded by the system. Two of n ids are equal with a probability of
// about n²/2^129. It is safe for concurrent use.
func AppendRandomID(dst []byte) []byte {
	var id [RandomIDLen / 2]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return hex.AppendEncode(dst, id[:])
}
