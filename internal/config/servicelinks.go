package config

import (
	"net"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Kubernetes sets variables in every pod, unless enableServiceLinks is false, for each Service of its
// namespace. They begin with the Service's name. So a Service called retryproxy, or retryproxy-<x>,
// produces names that begin like ours:
//
//	RETRYPROXY_SERVICE_HOST=10.0.0.1
//	RETRYPROXY_SERVICE_PORT=80             RETRYPROXY_SERVICE_PORT_<PORT NAME>=80
//	RETRYPROXY_PORT=tcp://10.0.0.1:80      RETRYPROXY_PORT_80_TCP=tcp://10.0.0.1:80
//	RETRYPROXY_PORT_80_TCP_PROTO=tcp       RETRYPROXY_PORT_80_TCP_PORT=80
//	RETRYPROXY_PORT_80_TCP_ADDR=10.0.0.1
//
// and the same after RETRYPROXY_<X>_. They are recognised by name and value together, so that a
// misspelled setting is not mistaken for one of them.
//
// The patterns are compiled when they are first needed, for an unknown name, which most processes do
// not have.
var serviceLinks = sync.OnceValue(func() []serviceLink {
	return []serviceLink{
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?SERVICE_HOST$`), isLinkAddress},
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?SERVICE_PORT(_\w+)?$`), isLinkPort},
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?PORT$`), isLinkURL},
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?PORT_\d+_(TCP|UDP|SCTP)$`), isLinkURL},
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?PORT_\d+_(TCP|UDP|SCTP)_PROTO$`), isLinkProtocol},
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?PORT_\d+_(TCP|UDP|SCTP)_PORT$`), isLinkPort},
		{regexp.MustCompile(`^RETRYPROXY_(\w+_)?PORT_\d+_(TCP|UDP|SCTP)_ADDR$`), isLinkAddress},
	}
})

type serviceLink struct {
	name  *regexp.Regexp
	value func(string) bool
}

// isServiceLink reports whether Kubernetes, not a user, set the variable.
func isServiceLink(name, value string) bool {
	for _, link := range serviceLinks() {
		if link.name.MatchString(name) && link.value(value) {
			return true
		}
	}
	return false
}

func isLinkAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func isLinkPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func isLinkProtocol(s string) bool { return s == "tcp" || s == "udp" || s == "sctp" }

func isLinkURL(s string) bool {
	protocol, address, found := strings.Cut(s, "://")
	if !found || !isLinkProtocol(protocol) {
		return false
	}
	host, port, err := net.SplitHostPort(address)
	return err == nil && isLinkAddress(host) && isLinkPort(port)
}
