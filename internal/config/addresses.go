package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Address is where to listen: a TCP host:port, a unix socket, or off. The zero value means
// that it is not set.
type Address struct{ text string }

// MakeAddress parses text as UnmarshalText does.
func MakeAddress(text string) (Address, error) {
	var a Address
	err := a.UnmarshalText([]byte(text))
	return a, err
}

// String returns the address as written: "host:port", ":port", "unix:/path",
// "off", or "" for the zero value.
func (a Address) String() string { return a.text }

// Off reports whether the value is off.
func (a Address) Off() bool { return a.text == "off" }

// Set reports whether an address or off was set.
func (a Address) Set() bool { return a.text != "" }

// Split returns the arguments of net.Listen: "unix" and a path, or "tcp" and host:port. It
// returns empty strings for the zero value and for off.
func (a Address) Split() (network, address string) {
	if a.text == "" || a.Off() {
		return "", ""
	}
	if path, unix := strings.CutPrefix(a.text, "unix:"); unix {
		return "unix", path
	}
	return "tcp", a.text
}

// Wildcard reports whether the address is a TCP address that stands for all addresses of
// the machine.
func (a Address) Wildcard() bool {
	host, _, err := net.SplitHostPort(a.text)
	return err == nil && isWildcard(host)
}

// UnmarshalText checks that the port is a number from 0 to 65535 and that a socket's path
// is absolute. The caller decides whether off is allowed.
func (a *Address) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "off" {
		a.text = s
		return nil
	}
	if path, unix := strings.CutPrefix(s, "unix:"); unix {
		if err := checkSocketPath(path); err != nil {
			return err
		}
		a.text = s
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return errors.New("no host:port")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errors.New("the port must be a number from 0 to 65535")
	}
	if host != "" && !isHost(host) {
		return errors.New("not a host name or IP address")
	}
	a.text = s
	return nil
}

// MarshalText returns the text of String.
func (a Address) MarshalText() ([]byte, error) { return []byte(a.text), nil }

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
