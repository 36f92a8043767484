package forward

import (
	"strings"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

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
