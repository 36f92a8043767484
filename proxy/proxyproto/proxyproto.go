// Package proxyproto reads the header of the PROXY protocol, versions 1 and 2:
// with it a load balancer that only passes bytes on says, before the first of
// them, who the client is (the specification is HAProxy's doc/proxy-protocol.txt).
//
// Parse is all there is to call. It is pure: bytes in, values out, no socket, no
// clock, nothing kept. Give it what came so far, and more when it says so. It
// accepts no more than the specification does, and never reads beyond the header.
//
// Whether somebody may say who the client is, is not asked here: that is the
// first thing to ask, as anybody can write such a header.
package proxyproto

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
)

// MaxBytes is the longest header that is accepted. Version 1 has at most 107
// bytes by itself; version 2 could announce 64 KiB of further information, which
// nobody here looks at, and a client's certificate is the largest that is sent (1
// to 2 KiB).
const MaxBytes = 4096

// Failure says why a connection did not begin with a header. The set is closed;
// String is the metric label. The zero value means that nothing failed. It is an
// error.
type Failure uint8

// The failures. Parse finds the first three; the last two are for those who read.
const (
	None      Failure = iota
	Missing           // it begins with something else
	Malformed         // it begins like one and breaks the specification
	TooLong           // longer than MaxBytes, or a line of version 1 than 107
	TimedOut          // it did not come in time
	Truncated         // the connection ended within it

	NumFailures
)

var failures = [NumFailures]string{"none", "missing", "malformed", "too_long", "slow", "cut"}

// String is the label of the failure: lower case words joined by underscores.
func (f Failure) String() string {
	if f >= NumFailures {
		return "unknown"
	}
	return failures[f]
}

// Error says what was wrong, without a byte of what came.
func (f Failure) Error() string { return "PROXY protocol header: " + f.String() }

// Header is what a header says.
type Header struct {
	// Source is the client's address and port. It is not valid where the header
	// does not tell: the load balancer's own checks (LOCAL), clients that it does
	// not know or that came by something else than TCP over IP. Then the connection's
	// own address counts.
	Source netip.AddrPort
}

const (
	signature1 = "PROXY "
	signature2 = "\r\n\r\n\x00\r\nQUIT\n"
	maxLine    = 107 // with CRLF; the specification's section 2.1
	fixed2     = 16  // bytes of version 2 before what its length counts
)

// Parse reads the header at the beginning of b, which n bytes of it are. n is 0
// when b is only the beginning of one: ask again with more, at most MaxBytes. A
// failure is that of any longer b as well.
func Parse(b []byte) (h Header, n int, why Failure) {
	switch {
	case begins(b, signature2):
		return parse2(b)
	case begins(b, signature1):
		return parse1(b)
	}
	return Header{}, 0, Missing
}

// begins says whether b begins with the signature, as far as it goes.
func begins(b []byte, signature string) bool {
	k := min(len(b), len(signature))
	return string(b[:k]) == signature[:k]
}

// parse1 reads "PROXY TCP4 source destination port port CRLF" or "PROXY UNKNOWN
// [anything] CRLF".
func parse1(b []byte) (h Header, n int, why Failure) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	switch {
	case end < 0 && len(b) >= maxLine:
		return h, 0, TooLong
	case end < 0:
		return h, 0, None
	case b[end-1] != '\r':
		return h, 0, Malformed
	}
	words := strings.Split(string(b[len(signature1):end-1]), " ")
	if words[0] == "UNKNOWN" {
		return h, end + 1, None
	}
	if len(words) != 5 {
		return h, 0, Malformed
	}
	source, ok := endpoint(words[0], words[1], words[3])
	_, okToo := endpoint(words[0], words[2], words[4])
	if !ok || !okToo {
		return h, 0, Malformed
	}
	return Header{Source: source}, end + 1, None
}

// endpoint reads an address of the family and a port, both without leading zeros.
func endpoint(family, address, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(address)
	fits := family == "TCP4" && a.Is4() || family == "TCP6" && a.Is6() && a.Zone() == ""
	p, portErr := strconv.ParseUint(port, 10, 16)
	if err != nil || !fits || portErr != nil || len(port) > 1 && port[0] == '0' {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(p)), true
}

// The commands, families and transports of version 2.
const (
	commandLocal = 0x20
	commandProxy = 0x21

	streamIPv4 = 0x11
	streamIPv6 = 0x21
)

// lengths are what the addresses of a family need; the family is the upper half
// of the byte that names family and transport.
var lengths = [...]int{0, 12, 36, 216} // unspecified, IPv4, IPv6, unix

// parse2 reads the binary form. What follows the addresses is not looked at.
func parse2(b []byte) (h Header, n int, why Failure) {
	if len(b) < fixed2 {
		return h, 0, None
	}
	command, kind := b[12], b[13]
	if command != commandLocal && command != commandProxy || !defined(kind) {
		return h, 0, Malformed
	}
	length := int(binary.BigEndian.Uint16(b[14:]))
	n = fixed2 + length
	switch {
	case n > MaxBytes:
		return h, 0, TooLong
	case command == commandProxy && length < lengths[kind>>4]:
		return h, 0, Malformed
	case len(b) < n:
		return h, 0, None
	}
	if command == commandProxy {
		h.Source = source2(kind, b[fixed2:])
	}
	return h, n, None
}

// defined says whether the specification has the family and transport; all others
// "must be rejected as invalid".
func defined(kind byte) bool {
	family, transport := kind>>4, kind&0xf
	return kind == 0 || family >= 1 && int(family) < len(lengths) && (transport == 1 || transport == 2)
}

// source2 is not valid for what is not TCP over IP.
func source2(kind byte, b []byte) netip.AddrPort {
	switch kind {
	case streamIPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(b[8:]))
	case streamIPv6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b)), binary.BigEndian.Uint16(b[32:]))
	}
	return netip.AddrPort{}
}
