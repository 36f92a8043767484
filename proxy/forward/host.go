package forward

import (
	"bytes"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// appendHost writes the Host for the upstream under the given name. The
// authority of an absolute-form target takes the place of the caller's Host
// (RFC 9112 section 3.2.2).
func (w *requestWriter) appendHost(dst, name []byte) []byte {
	if w.keepsHost() {
		return http1.AppendField(dst, name, w.r.Authority)
	}
	if w.s.Host == HostName && w.s.HostName != "" {
		return http1.AppendField(dst, name, w.s.HostName)
	}
	return http1.AppendField(dst, name, w.s.UpstreamHost)
}

// keepsHost says that the upstream gets the caller's Host.
func (w *requestWriter) keepsHost() bool {
	caller := w.r.Authority
	if len(caller) == 0 {
		return false
	}
	switch w.s.Host {
	case HostPreserve:
		return true
	case HostName:
		return w.s.HostName == "" && w.s.UpstreamHost == ""
	case HostUpstream:
		return w.s.UpstreamHost == ""
	}
	return w.s.UpstreamHost == "" || !isLoopback(caller) && !isOwn(w.s.Own, caller, w.p.Proto)
}

// splitPort cuts ":port" off an authority; the port is without colon.
func splitPort(authority []byte) (host, port []byte) {
	i := bytes.LastIndexByte(authority, ':')
	if i < 0 || bytes.IndexByte(authority[i:], ']') >= 0 {
		return authority, nil
	}
	return authority[:i], authority[i+1:]
}

// isLoopback says whether the authority names this machine to itself, at any
// port: localhost and names below it (RFC 6761 section 6.3), 127.0.0.0/8 and ::1.
func isLoopback(authority []byte) bool {
	switch authority[0] {
	case '1':
		host, _ := splitPort(authority)
		return bytes.HasPrefix(host, []byte("127.")) && len(bytes.Trim(host, "0123456789.")) == 0
	case '[':
		host, _ := splitPort(authority)
		return isLoopback6(bytes.Trim(host, "[]"))
	}
	host, _ := splitPort(authority)
	host = bytes.TrimSuffix(host, []byte("."))
	const name, below = "localhost", ".localhost"
	return http1.EqualFold(host, name) || len(host) > len(below) && http1.EqualFold(host[len(host)-len(below):], below)
}

// isLoopback6 knows ::1 however it is written, and 127.0.0.0/8 mapped as in
// RFC 4291 section 2.5.5.2. host is an IPv6 address.
func isLoopback6(host []byte) bool {
	const mapped = "::ffff:127."
	if len(host) > len(mapped) && http1.EqualFold(host[:len(mapped)], mapped) {
		return true
	}
	n := len(host)
	return n > 0 && host[n-1] == '1' && len(bytes.Trim(host[:n-1], "0:")) == 0
}

// isOwn says whether the authority is one of own. A port that is not given is
// the scheme's; an entry without port stands for all ports.
func isOwn(own []string, authority []byte, proto string) bool {
	if len(own) == 0 {
		return false
	}
	host, port := splitPort(authority)
	if len(port) == 0 {
		port = []byte(ownPort(proto == "https"))
	}
	for _, o := range own {
		name, number := cutPort(o)
		if http1.EqualFold(host, name) && (number == "" || string(port) == number) {
			return true
		}
	}
	return false
}
