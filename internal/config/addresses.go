package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// Address is where to listen: host:port, :port, unix:/path or off. "" means that it is not set.
type Address string

// Off reports whether the value is off.
func (a Address) Off() bool { return a == "off" }

// Split returns the arguments of net.Listen: "unix" and a path, or "tcp" and host:port. It
// returns empty strings if it is not set or off.
func (a Address) Split() (network, address string) {
	if a == "" || a.Off() {
		return "", ""
	}
	if path, unix := strings.CutPrefix(string(a), "unix:"); unix {
		return "unix", path
	}
	return "tcp", string(a)
}

// Wildcard reports whether the address is a TCP address that stands for all addresses of
// the machine.
func (a Address) Wildcard() bool {
	host, _, err := net.SplitHostPort(string(a))
	return err == nil && isWildcard(host)
}

// ParseAddress checks that the port is a number from 0 to 65535 and that a socket's path is
// absolute. The caller decides whether off is allowed.
func ParseAddress(s string) (Address, error) {
	if s == "off" {
		return Address(s), nil
	}
	if path, unix := strings.CutPrefix(s, "unix:"); unix {
		return Address(s), checkSocketPath(path)
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return "", errForm
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", errors.New("the port must be a number from 0 to 65535")
	}
	if host != "" && (!isHost(host) || strings.Trim(host, "0123456789") == "") {
		return "", errors.New("not a host name or IP address")
	}
	return Address(s), nil
}

// maxSocketPath is the maximum length of a socket's path on Linux, without the terminating
// zero (unix(7): sun_path has 108 bytes).
const maxSocketPath = 107

func checkSocketPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/"):
		return errors.New("a socket's path must begin with /")
	case len(path) > maxSocketPath:
		return errors.New("a socket's path has at most 107 bytes")
	case strings.HasSuffix(path, "/"):
		return errors.New("a socket's path names a file")
	}
	return nil
}

// serverName returns the name that a rule sends, without its port; "" if it sends none.
func serverName(h forward.HostRule) string {
	if host, _, err := net.SplitHostPort(h.Name); err == nil {
		return host
	}
	return strings.Trim(h.Name, "[]")
}

func parseHostRule(s string) (forward.HostRule, error) {
	for mode := forward.HostAuto; mode <= forward.HostUpstream; mode++ {
		if s == mode.String() {
			return forward.HostRule{Mode: mode}, nil
		}
		if strings.EqualFold(s, mode.String()) { // nobody means a host of that name
			return forward.HostRule{}, errForm
		}
	}
	if !isAuthority(s) {
		return forward.HostRule{}, errForm
	}
	return forward.HostRule{Name: s}, nil
}

func isAuthority(s string) bool {
	if isHost(s) && !strings.Contains(s, ":") {
		return true
	}
	if bare, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(bare, "]") {
		return isHost(strings.TrimSuffix(bare, "]"))
	}
	address, err := ParseAddress(s)
	return err == nil && !strings.HasPrefix(s, ":") && !strings.HasPrefix(s, "unix:") && !address.Off()
}

// Prefixes is a list of IP address ranges.
type Prefixes []netip.Prefix

// parsePrefixes parses CIDR ranges and single addresses separated by commas. Bits set below
// the mask are an error, since they are probably a mistake.
func parsePrefixes(text string) (Prefixes, error) {
	var errs []error
	list := Prefixes{}
	for _, s := range splitList(text) {
		prefix, err := parsePrefix(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, prefix)
	}
	return list, errors.Join(errs...)
}

func parsePrefix(s string) (netip.Prefix, error) {
	if ip, err := netip.ParseAddr(s); err == nil && ip.Zone() == "" {
		ip = ip.Unmap()
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil || prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not an address or CIDR range", s)
	}
	if prefix != prefix.Masked() {
		return netip.Prefix{}, fmt.Errorf("%q has bits below its mask: did you mean %s?", s, prefix.Masked())
	}
	return prefix, nil
}

// String is the inverse of parsePrefixes.
func (p Prefixes) String() string {
	parts := make([]string, len(p))
	for i, prefix := range p {
		parts[i] = prefix.String()
	}
	return strings.Join(parts, ",")
}

// Upstream is where requests are sent. The zero value means that it is not set. Its TLS is
// as returned by upstream.ParseTarget: files are loaded later.
type Upstream struct{ target upstream.Target }

func parseUpstream(s string) (Upstream, error) {
	target, err := upstream.ParseTarget(s)
	if err == nil {
		return Upstream{target}, nil
	}
	// The final message has variable and value already, which the error repeats: upstream "...": .
	if _, detail, found := strings.Cut(err.Error(), "\": "); found {
		err = errors.New(detail)
	}
	return Upstream{}, err
}

// Set reports whether an upstream was set.
func (u Upstream) Set() bool { return u.target.Address != "" }

// TLS reports whether the upstream uses TLS.
func (u Upstream) TLS() bool { return u.target.TLS != nil }

// Loopback reports whether the upstream is on this machine by its name.
func (u Upstream) Loopback() bool { return u.Set() && u.target.Local() }

// Target returns the target for package upstream.
func (u Upstream) Target() upstream.Target { return u.target }

// String returns the upstream in the syntax of the setting; "" for the zero value.
func (u Upstream) String() string {
	if !u.Set() {
		return ""
	}
	return u.target.String()
}

// isLoopbackName reports whether host is an address of 127.0.0.0/8 or ::1, localhost, or a
// name below it.
func isLoopbackName(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isHost accepts an IP address (with a zone, if IPv6) or a DNS name. Host names in a
// cluster or compose network may contain underscores.
func isHost(s string) bool {
	if _, err := netip.ParseAddr(s); err == nil {
		return true
	}
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && s[i] != '-' && s[i] != '_' {
			return false
		}
	}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
