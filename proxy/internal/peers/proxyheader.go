package peers

import (
	"net/netip"

	"github.com/retryproxy/retryproxy/proxy/settings"
)

// ExpectProxyHeader makes every peer of this machine begin with a header.
func ExpectProxyHeader(c *settings.Config) {
	c.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
}

// Headers of the PROXY protocol.
const (
	ProxyHeader1   = "PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n"
	ProxySignature = "\r\n\r\n\x00\r\nQUIT\n"
	ProxyHeader2   = ProxySignature + "\x21\x21\x00\x27" + "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb" + "\x04\x00\x00" // and a NOOP
	LocalProxyHeader2 = ProxySignature + "\x20\x00\x00\x00"
)
