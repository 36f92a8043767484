package http1

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestLookupHeaderNameKnowsEverySpelling(t *testing.T) {
	for n := OtherHeader + 1; n < headerNameCount; n++ {
		s := n.String()
		if s == "" {
			continue
		}
		if len(s) > longestName {
			t.Errorf("%s is longer than longestName", s)
		}
		for _, spelt := range []string{s, strings.ToLower(s), strings.ToUpper(s)} {
			if got := LookupHeaderName([]byte(spelt)); got != n {
				t.Errorf("LookupName(%q) = %d, want %d", spelt, got, n)
			}
		}
		for _, near := range []string{s + "x", s[:len(s)-1], "x" + s} {
			if got := LookupHeaderName([]byte(near)); got == n {
				t.Errorf("LookupName(%q) = %s", near, s)
			}
		}
	}
}

func TestLookupHeaderNameOfOthers(t *testing.T) {
	for name, want := range map[string]HeaderName{
		"":                                     OtherHeader,
		"X-Custom":                             OtherHeader,
		"X-Retryproxy-":                        OtherHeader,
		"X-Retryproxy-Backoff":                 XRetryproxyOther,
		"x-RETRYPROXY-a":                       XRetryproxyOther,
		"X-Retryproxy-" + longName(60):         XRetryproxyOther,
		"X_Retryproxy-Attempt":                 ForwardedLookalike,
		"X_Retryproxy_" + longName(60):         ForwardedLookalike,
		"X-Retryproxy_Anything":                ForwardedLookalike,
		"X_Forwarded_For":                      ForwardedLookalike,
		"X-Forwarded_Proto":                    ForwardedLookalike,
		"x_real_ip":                            ForwardedLookalike,
		"Content_Length":                       FramingLookalike,
		"TRANSFER_ENCODING":                    FramingLookalike,
		"Content.Length":                       FramingLookalike,
		"Transfer.Encoding":                    FramingLookalike,
		"content!length":                       FramingLookalike,
		"X.Forwarded~For":                      ForwardedLookalike,
		"X.Retryproxy-Attempt":                 ForwardedLookalike,
		"Content.Type":                         OtherHeader,
		"ContentLength":                        OtherHeader,
		"Content_Type":                         OtherHeader,
		"my_field":                             OtherHeader,
		"a_" + longName(60):                    OtherHeader,
		"Host\x00":                             OtherHeader,
		"Con\x4eection":                        Connection,
		"C\x0fnnection":                        OtherHeader, // differs from o by the case bit only when letters are folded carelessly
		"Content\x0dLength":                    OtherHeader, // likewise - and CR
		"\u212aeep-Alive":                      OtherHeader, // the Kelvin sign folds to k in Unicode, not here
		strings.Repeat("_", longestName+1):     OtherHeader,
		"Proxy-Authentication-Info":            ProxyAuthenticationInfo,
		"proxy-authentication-inf\xef\xbd\x8f": OtherHeader,
	} {
		if got := LookupHeaderName([]byte(name)); got != want {
			t.Errorf("LookupName(%q) = %d (%s), want %d (%s)", name, got, got, want, want)
		}
	}
}

// A name that was there in the last head is tried first. Whatever was there, the id and the spans are what a fresh reader finds.
func TestNamesOfTheLastMessageChangeNothing(t *testing.T) {
	var lines []string
	for n := OtherHeader + 1; n < headerNameCount; n++ {
		s := n.String()
		lower, upper := strings.ToLower(s), strings.ToUpper(s)
		lines = append(lines, s+":v", lower+": v", upper+":", s+"x: v", s+" : v", s+"v", lower[:len(s)/2]+": 12345678", strings.ReplaceAll(s, "-", "\r")+": v",
			strings.ReplaceAll(s, "-", "_")+": v")
	}
	for left := range headerNameCount {
		for _, line := range lines {
			for _, rest := range []string{"", "\r\n", "\r\n\r\n", "\r\n\r\nof a body"} {
				b := []byte(line + rest)
				want, wantNext, wantWhy := readHeaders(nil, b, 0, 1)
				got, next, why := readHeaders([]Header{{ID: left}}[:0], b, 0, 1)
				if next != wantNext || why != wantWhy || !slices.EqualFunc(got, want, sameHeader) {
					t.Fatalf("%q after %s: %v %d %s, want %v %d %s", b, left, got, next, why, want, wantNext, wantWhy)
				}
			}
		}
	}
}

func sameHeader(a, b Header) bool {
	return bytes.Equal(a.Name, b.Name) && bytes.Equal(a.Value, b.Value) && a.ID == b.ID
}

// So a line that begins with a known name is read at once, and no other one is.
func TestNameLinesFitTheirOwnNamesAlone(t *testing.T) {
	for n := range headerNameCount {
		if nameLines[n].begins(make([]byte, 16), 0) {
			t.Errorf("a line of NULs begins with %q", n)
		}
		for other := range headerNameCount {
			s := other.String()
			for _, spelt := range []string{s, strings.ToLower(s), strings.ToUpper(s)} {
				got := nameLines[n].begins([]byte("\r\n"+spelt+": eight bytes"), 2)
				if want := n == other && 0 < len(s) && len(s) < 16; got != want {
					t.Errorf("a line of %q begins with %q: %v", spelt, n, got)
				}
			}
			for i := range len(s) {
				near := []byte(s + ": eight bytes")
				for bit := range 8 {
					if bit == 5 && s[i] >= 'A' {
						continue // the case of a letter
					}
					near[i] ^= 1 << bit
					if nameLines[n].begins(near, 0) {
						t.Errorf("%q begins with %q", near, n)
					}
					near[i] ^= 1 << bit
				}
			}
		}
	}
}

func longName(n int) string { return strings.Repeat("n", n) }

// A long chain would make some names slow, and would grow unseen as names are added.
func TestNameTableHasShortChains(t *testing.T) {
	for h, n := range nameBucket {
		length := 0
		for ; n != OtherHeader; n = nameNext[n] {
			length++
		}
		if length > 3 {
			t.Errorf("bucket %d holds %d names", h, length)
		}
	}
}

func TestNameGroups(t *testing.T) {
	for _, c := range []struct {
		name                         string
		control, forwarding, trailer bool // trailer: allowed in a trailer section
	}{
		{name: "Connection"},
		{name: "Keep-Alive"},
		{name: "Proxy-Connection"},
		{name: "Transfer-Encoding"},
		{name: "TE"},
		{name: "Trailer"},
		{name: "Upgrade"},
		{name: "Proxy-Authenticate"},
		{name: "Proxy-Authentication-Info"},
		{name: "Proxy-Authorization"},
		{name: "HTTP2-Settings"},
		{name: "Content-Length"},
		{name: "Content_Length"},
		{name: "Host"},
		{name: "Expect"},
		{name: "Authorization"},
		{name: "Set-Cookie"},
		{name: "Content-Type"},
		{name: "Cache-Control"},
		{name: "Retry-After"},
		{name: "Idempotency-Key"},
		{name: "X-Retryproxy-Attempt", control: true},
		{name: "X-Retryproxy-Attempts", control: true},
		{name: "X-Retryproxy-Reason", control: true},
		{name: "X-Retryproxy-Hold", control: true},
		{name: "X-Forwarded-For", forwarding: true},
		{name: "X-Forwarded-Proto", forwarding: true},
		{name: "X-Forwarded-Host", forwarding: true},
		{name: "X-Forwarded-Port", forwarding: true},
		{name: "X-Real-IP", forwarding: true},
		{name: "Forwarded", forwarding: true},
		{name: "X_Forwarded_For", forwarding: true},
		{name: "Via"},
		{name: "ETag", trailer: true},
		{name: "Server-Timing", trailer: true},
		{name: "Grpc-Status", trailer: true},
		{name: "Digest", trailer: true},
	} {
		n := LookupHeaderName([]byte(c.name))
		if n.IsControl() != c.control || n.IsForwarding() != c.forwarding || n.TrailerForbidden() == c.trailer {
			t.Errorf("%s: control %v, forwarding %v, trailer forbidden %v",
				c.name, n.IsControl(), n.IsForwarding(), n.TrailerForbidden())
		}
	}
	if s := headerNameCount.String(); s != "" {
		t.Errorf("String of no name = %q", s)
	}
}
