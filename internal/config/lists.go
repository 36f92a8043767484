package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// DefaultRoute is the name of the route for requests that match no other.
const DefaultRoute = "default"

// maxRouteName keeps metric labels readable and within the 63 bytes that Kubernetes allows
// for a label.
const maxRouteName = 63

// RouteNames holds the names of the routes, as written and in order.
type RouteNames []string

// UnmarshalText parses names separated by commas. Names must differ by more than case,
// since variables are in upper case.
func (n *RouteNames) UnmarshalText(text []byte) error {
	var errs []error
	seen := map[string]bool{}
	names := RouteNames{}
	for _, name := range splitList(string(text)) {
		switch upper := configfile.RouteWord(name); {
		case !isRouteName(name):
			errs = append(errs, fmt.Errorf("%q is not made of 1 to 63 letters, digits and dashes between them", name))
		case upper == strings.ToUpper(DefaultRoute):
			errs = append(errs, errors.New("the name default belongs to what no route takes; its settings are those without a route"))
		case seen[upper]:
			errs = append(errs, fmt.Errorf("%q is listed twice", name))
		default:
			seen[upper] = true
			names = append(names, name)
		}
	}
	*n = names
	return errors.Join(errs...)
}

// MarshalText is the inverse of UnmarshalText.
func (n RouteNames) MarshalText() ([]byte, error) { return []byte(strings.Join(n, ",")), nil }

func isRouteName(s string) bool {
	for part := range strings.SplitSeq(s, "-") {
		if part == "" {
			return false
		}
		for i := range len(part) {
			if !isAlphanumeric(part[i]) {
				return false
			}
		}
	}
	return len(s) <= maxRouteName
}

// routePrefix returns the prefix of the names of a route's variables.
func routePrefix(name string) string { return Prefix + "ROUTE_" + configfile.RouteWord(name) + "_" }

// RouteVariable returns the variable that sets a key for the route of that name.
func RouteVariable(name, key string) string { return routePrefix(name) + key }

// Prefixes is a list of IP address ranges.
type Prefixes []netip.Prefix

// UnmarshalText parses CIDR ranges and single addresses separated by commas. Bits set below
// the mask are an error, since they are probably a mistake.
func (p *Prefixes) UnmarshalText(text []byte) error {
	var errs []error
	list := Prefixes{}
	for _, s := range splitList(string(text)) {
		prefix, err := parsePrefix(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		list = append(list, prefix)
	}
	*p = list
	return errors.Join(errs...)
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

// MarshalText is the inverse of UnmarshalText.
func (p Prefixes) MarshalText() ([]byte, error) {
	parts := make([]string, len(p))
	for i, prefix := range p {
		parts[i] = prefix.String()
	}
	return []byte(strings.Join(parts, ",")), nil
}

// Methods is a list of HTTP methods, as written and in order.
type Methods []string

// UnmarshalText parses method names separated by commas. Methods are case-sensitive (RFC
// 9110 section 9.1), so a lower-case one is an error.
func (m *Methods) UnmarshalText(text []byte) error {
	var errs []error
	list := Methods{}
	for _, s := range splitList(string(text)) {
		switch {
		case !isToken(s):
			errs = append(errs, fmt.Errorf("%q is not a method", s))
		case s != strings.ToUpper(s):
			errs = append(errs, fmt.Errorf("%q is not in upper case", s))
		default:
			list = append(list, s)
		}
	}
	*m = list
	return errors.Join(errs...)
}

// MarshalText is the inverse of UnmarshalText.
func (m Methods) MarshalText() ([]byte, error) { return []byte(strings.Join(m, ",")), nil }

// HostRule is auto, preserve or upstream, or a name to send as Host.
type HostRule struct{ text string }

// Auto reports whether the rule is auto.
func (h HostRule) Auto() bool { return h.text == "auto" }

// Preserve reports whether the client's Host is sent.
func (h HostRule) Preserve() bool { return h.text == "preserve" }

// Upstream reports whether the upstream's Host is sent.
func (h HostRule) Upstream() bool { return h.text == "upstream" }

// Name returns the Host to send; "" if the rule is one of the words.
func (h HostRule) Name() string {
	if h.Auto() || h.Preserve() || h.Upstream() {
		return ""
	}
	return h.text
}

// ServerName returns the Host to send without its port; "" if the rule is one of the words.
func (h HostRule) ServerName() string {
	name := h.Name()
	if host, _, err := net.SplitHostPort(name); err == nil {
		return host
	}
	return strings.Trim(name, "[]")
}

// UnmarshalText parses one of the words or host[:port].
func (h *HostRule) UnmarshalText(text []byte) error {
	s := string(text)
	if !isAuthority(s) {
		return errors.New("not a host name with or without a port")
	}
	h.text = s
	return nil
}

// MarshalText is the inverse of UnmarshalText.
func (h HostRule) MarshalText() ([]byte, error) { return []byte(h.text), nil }

func isAuthority(s string) bool {
	if isHost(s) && !strings.Contains(s, ":") {
		return true
	}
	if bare, ok := strings.CutPrefix(s, "["); ok && strings.HasSuffix(bare, "]") {
		return isHost(strings.TrimSuffix(bare, "]"))
	}
	address, err := MakeAddress(s)
	return err == nil && !strings.HasPrefix(s, ":") && !strings.HasPrefix(address.text, "unix:") && !address.Off()
}

// splitList splits at commas, trims, and drops empty parts, so that a list may end in a
// comma.
func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(s[i])) {
			return false
		}
	}
	return s != ""
}
