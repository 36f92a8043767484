package forward

import (
	"strings"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// IsHost says whether the authority of a target with that scheme is host, which
// is written as Settings.UpstreamHost is. Letters' case, a final dot and a port
// that is the scheme's own do not matter; all else is compared as text, and nothing
// is resolved: another spelling of an address is another host.
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

// PortImplied says whether the authority has no port, or the scheme's own.
func PortImplied(authority, scheme []byte) bool {
	_, port := splitPort(authority)
	return len(port) == 0 || string(port) == defaultPort(http1.EqualFold(scheme, "https"))
}

// HasPort says whether the host is written with a port.
func HasPort(host string) bool {
	_, port := cutPort(host)
	return port != ""
}

// defaultPort is a scheme's.
func defaultPort(secure bool) string {
	if secure {
		return "443"
	}
	return "80"
}

// cutPort is splitPort for names of ours.
func cutPort(host string) (name, port string) {
	if i := strings.LastIndexByte(host, ':'); i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		return host[:i], host[i+1:]
	}
	return host, ""
}
