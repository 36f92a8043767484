package proxyproto

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	other "github.com/pires/go-proxyproto"
)

// v2 is a header of version 2: command, family and transport, and what follows.
func v2(command, kind byte, rest string) string {
	return signature2 + string([]byte{command, kind, byte(len(rest) >> 8), byte(len(rest))}) + rest
}

const (
	ipv4Pair = "\xc0\x00\x02\x01\xc6\x33\x64\x02\xdc\x04\x01\xbb"
	ipv6Pair = "\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" +
		"\x20\x01\x0d\xb8\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\xdc\x04\x01\xbb"
)

var accepted = map[string]struct{ header, source string }{
	"v1 IPv4":                   {"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", "192.0.2.1:56324"},
	"v1 IPv6":                   {"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "[2001:db8::1]:56324"},
	"v1 lowest port":            {"PROXY TCP4 0.0.0.0 255.255.255.255 0 65535\r\n", "0.0.0.0:0"},
	"v1 unknown":                {"PROXY UNKNOWN\r\n", ""},
	"v1 unknown with addresses": {"PROXY UNKNOWN ffff:f:f:f:f:f:f:f ffff:f:f:f:f:f:f:f 65535 65535\r\n", ""},
	"v1 longest":                {"PROXY UNKNOWN " + strings.Repeat("f", maxLine-16) + "\r\n", ""},
	"v2 IPv4":                   {v2(0x21, 0x11, ipv4Pair), "192.0.2.1:56324"},
	"v2 IPv6":                   {v2(0x21, 0x21, ipv6Pair), "[2001:db8::1]:56324"},
	"v2 with more":              {v2(0x21, 0x11, ipv4Pair+"\x02\x00\x03abc"), "192.0.2.1:56324"},
	"v2 with more that is none": {v2(0x21, 0x11, ipv4Pair+"\xff"), "192.0.2.1:56324"},
	"v2 longest":                {v2(0x21, 0x21, ipv6Pair+strings.Repeat("x", MaxBytes-fixed2-36)), "[2001:db8::1]:56324"},
	"v2 local":                  {v2(0x20, 0x00, ""), ""},
	"v2 local with addresses":   {v2(0x20, 0x11, ipv4Pair), ""},
	"v2 local with fewer":       {v2(0x20, 0x21, "\x00"), ""},
	"v2 unspecified":            {v2(0x21, 0x00, ""), ""},
	"v2 unspecified with more":  {v2(0x21, 0x00, "abc"), ""},
	"v2 UDP":                    {v2(0x21, 0x12, ipv4Pair), ""},
	"v2 unix":                   {v2(0x21, 0x31, strings.Repeat("/", 216)), ""},
}

var refused = map[string]struct {
	header string
	why    Failure
}{
	"a request":              {"GET / HTTP/1.1\r\n", Missing},
	"TLS":                    {"\x16\x03\x01\x02\x00", Missing},
	"HTTP/2":                 {"PRI * HTTP/2.0\r\n", Missing},
	"one byte":               {"x", Missing},
	"lower case":             {"proxy TCP4 192.0.2.1 198.51.100.2 1 2\r\n", Missing},
	"v1 another space":       {"PROXY  TCP4 192.0.2.1 198.51.100.2 1 2\r\n", Malformed},
	"v1 a space at the end":  {"PROXY TCP4 192.0.2.1 198.51.100.2 1 2 \r\n", Malformed},
	"v1 a bare LF":           {"PROXY TCP4 192.0.2.1 198.51.100.2 1 2\n", Malformed},
	"v1 nothing":             {"PROXY \r\n", Malformed},
	"v1 UDP":                 {"PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n", Malformed},
	"v1 other family":        {"PROXY TCP4 2001:db8::1 2001:db8::2 1 2\r\n", Malformed},
	"v1 IPv4 as IPv6":        {"PROXY TCP6 192.0.2.1 198.51.100.2 1 2\r\n", Malformed},
	"v1 leading zero":        {"PROXY TCP4 192.0.02.1 198.51.100.2 1 2\r\n", Malformed},
	"v1 a zone":              {"PROXY TCP6 fe80::1%eth0 2001:db8::2 1 2\r\n", Malformed},
	"v1 a name":              {"PROXY TCP4 localhost 198.51.100.2 1 2\r\n", Malformed},
	"v1 bad destination":     {"PROXY TCP4 192.0.2.1 x 1 2\r\n", Malformed},
	"v1 port with zero":      {"PROXY TCP4 192.0.2.1 198.51.100.2 01 2\r\n", Malformed},
	"v1 port too high":       {"PROXY TCP4 192.0.2.1 198.51.100.2 1 65536\r\n", Malformed},
	"v1 port with sign":      {"PROXY TCP4 192.0.2.1 198.51.100.2 +1 2\r\n", Malformed},
	"v1 no port":             {"PROXY TCP4 192.0.2.1 198.51.100.2\r\n", Malformed},
	"v1 too long":            {"PROXY UNKNOWN " + strings.Repeat("f", maxLine) + "\r\n", TooLong},
	"v2 version 1":           {v2(0x11, 0x11, ipv4Pair), Malformed},
	"v2 another command":     {v2(0x22, 0x11, ipv4Pair), Malformed},
	"v2 another family":      {v2(0x21, 0x41, ipv4Pair), Malformed},
	"v2 another transport":   {v2(0x21, 0x13, ipv4Pair), Malformed},
	"v2 no family, TCP":      {v2(0x21, 0x01, ""), Malformed},
	"v2 no transport":        {v2(0x21, 0x10, ipv4Pair), Malformed},
	"v2 no room for IPv4":    {v2(0x21, 0x11, ipv4Pair[:11]), Malformed},
	"v2 no room for IPv6":    {v2(0x21, 0x21, ipv6Pair[:35]), Malformed},
	"v2 no room for a path":  {v2(0x21, 0x31, strings.Repeat("/", 215)), Malformed},
	"v2 too long":            {v2(0x21, 0x11, ipv4Pair+strings.Repeat("x", MaxBytes)), TooLong},
	"v2 too long and local":  {v2(0x20, 0x00, strings.Repeat("x", MaxBytes-fixed2+1)), TooLong},
	"v2 too long, announced": {signature2 + "\x21\x11\xff\xff", TooLong},
}

func TestHeaderTellsTheSource(t *testing.T) {
	for name, c := range accepted {
		for _, after := range []string{"", "G", "GET / HTTP/1.1\r\n\r\n"} {
			h, n, why := Parse([]byte(c.header + after))
			if why != None || n != len(c.header) || h.Source.IsValid() != (c.source != "") || c.source != "" && h.Source.String() != c.source {
				t.Errorf("%s: %v, %d bytes of %d, %v", name, h.Source, n, len(c.header), why)
			}
		}
		for cut := range len(c.header) {
			if _, n, why := Parse([]byte(c.header[:cut])); n != 0 || why != None {
				t.Errorf("%s: of %d bytes %d are the header, %v", name, cut, n, why)
			}
		}
	}
}

func TestWhatIsNoHeaderIsRefused(t *testing.T) {
	for name, c := range refused {
		if _, n, why := Parse([]byte(c.header)); n != 0 || why != c.why {
			t.Errorf("%s: %d bytes, %v, want %v", name, n, why, c.why)
		}
	}
	if TimedOut.String() != "slow" || NumFailures.String() != "unknown" || Truncated.Error() != "PROXY protocol header: cut" {
		t.Error("names are wrong")
	}
}

// FuzzParse: a verdict on a part is the verdict on the whole; what is accepted,
// another implementation accepts with the same source and the same rest, apart
// from what it says it leaves out.
func FuzzParse(f *testing.F) {
	for _, c := range accepted {
		f.Add([]byte(c.header+"rest"), uint16(len(c.header)/2))
	}
	for _, c := range refused {
		f.Add([]byte(c.header), uint16(len(c.header)-1))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		h, n, why := Parse(b)
		part, partN, partWhy := Parse(b[:min(len(b), int(cut))])
		if partN != 0 && (partN != n || part != h) || partWhy != None && (partWhy != why || n != 0) {
			t.Fatalf("first %d bytes: %v %d %v; all: %v %d %v", cut, part, partN, partWhy, h, n, why)
		}
		if n > len(b) || n > MaxBytes || n > 0 && why != None || n == 0 && len(b) >= MaxBytes && why == None {
			t.Fatalf("%d bytes of %d, %v", n, len(b), why)
		}
		if n > 0 {
			compare(t, b, h, n)
		}
	})
}

func compare(t *testing.T, b []byte, h Header, n int) {
	t.Helper()
	r := bufio.NewReaderSize(bytes.NewReader(b), len(b)+16)
	theirs, err := other.Read(r)
	if errors.Is(err, other.ErrUnsupportedAddressFamilyAndProtocol) && b[12] == commandProxy && b[13] == 0 {
		return // the specification leaves it to the receiver to take clients that the sender cannot name
	}
	if err != nil {
		t.Fatalf("%q is accepted here, elsewhere: %v", b[:n], err)
	}
	source := netip.AddrPort{}
	if a, ok := theirs.SourceAddr.(*net.TCPAddr); ok && theirs.Command == other.PROXY {
		source = a.AddrPort()
	}
	rest, _ := io.ReadAll(r)
	if len(rest) != len(b)-n || unmapped(source) != unmapped(h.Source) {
		t.Fatalf("%q: source %v and %d bytes left, elsewhere %v and %d", b[:n], h.Source, len(b)-n, source, len(rest))
	}
}

// unmapped: net.IP does not tell an IPv4 address from one in IPv6 notation.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
