package http1

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
)

func TestEqualFoldIsASCIIOnly(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", true}, {"a", "A", true}, {"Keep-Alive", "kEEP-aLIVE", true}, {"a", "", false}, {"ab", "a", false},
		{"^", "~", false}, {"@", "`", false}, {"[", "{", false}, {"-", "\r", false}, {"\u212a", "k", false}, {"\xc4", "\xe4", false},
	} {
		if EqualFold([]byte(c.a), c.b) != c.want || EqualFold([]byte(c.b), c.a) != c.want || EqualFoldBytes([]byte(c.a), []byte(c.b)) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
}

func TestParseUint(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"007", 7, true}, {"9223372036854775807", 1<<63 - 1, true}, {"00009223372036854775807", 1<<63 - 1, true},
		{"9223372036854775808", 0, false}, {"92233720368547758070", 0, false}, {"18446744073709551616", 0, false},
		{"", 0, false}, {"+1", 0, false}, {"-1", 0, false}, {" 1", 0, false}, {"1 ", 0, false}, {"1_0", 0, false}, {"0x1", 0, false}, {"\xb2", 0, false},
	} {
		got, ok := ParseUint([]byte(c.in))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("ParseUint(%q) = %d, %v, want %d, %v", c.in, got, ok, c.want, c.ok)
		}
	}
}

func TestNextToken(t *testing.T) {
	for in, want := range map[string]string{
		"": "", " ": "", ",": "", " , \t,": "", "a": "a", "a,b": "a|b", " a ,\tb\t, ,c d,": "a|b|c d", ",a": "a",
	} {
		var got []string
		for e, rest := NextToken([]byte(in)); e != nil; e, rest = NextToken(rest) {
			got = append(got, string(e))
		}
		if strings.Join(got, "|") != want {
			t.Errorf("NextToken over %q = %q, want %q", in, got, want)
		}
	}
}

func TestHasToken(t *testing.T) {
	for _, c := range []struct {
		list, token string
		want        bool
	}{
		{"close", "close", true}, {"x, CLOSE", "close", true}, {"closed", "close", false}, {"x close", "close", false}, {"", "close", false},
	} {
		if got := HasToken([]byte(c.list), c.token); got != c.want {
			t.Errorf("HasToken(%q, %q) = %v", c.list, c.token, got)
		}
	}
}

// controlAt looks at eight bytes at once; one byte at a time it would be this.
func TestControlAtAgreesWithPlainLoop(t *testing.T) {
	plain := func(b []byte, i int) int {
		for i < len(b) && (b[i] == '\t' || b[i] >= 0x20 && b[i] != 0x7f) {
			i++
		}
		return i
	}
	for c := range 256 {
		for at := range 17 {
			b := bytes.Repeat([]byte("a"), 17)
			b[at] = byte(c)
			if got, want := controlAt(b, 0), plain(b, 0); got != want {
				t.Fatalf("byte %#x at %d: got %d, want %d", c, at, got, want)
			}
		}
	}
	rng := rand.New(rand.NewPCG(5, 8))
	notable := []byte{'\t', '\t', ' ', 'a', 0x7e, 0x80, 0x9f, 0xa0, 0xff, 0x1f, 0x7f, 0, '\r'}
	for range 20_000 {
		b := make([]byte, rng.IntN(40))
		for i := range b {
			b[i] = notable[rng.IntN(len(notable)-rng.IntN(4))]
		}
		i := rng.IntN(len(b) + 1)
		if got, want := controlAt(b, i), plain(b, i); got != want {
			t.Fatalf("%q from %d: got %d, want %d", b, i, got, want)
		}
	}
}

func TestColonAtAgreesWithIndexByte(t *testing.T) {
	for n := range 20 {
		for at := range n {
			for from := range at + 1 {
				for c := range 256 { // two colons, and any byte right before the first
					b := bytes.Repeat([]byte{';'}, n)
					b[max(at-1, 0)], b[n-1], b[at] = byte(c), ':', ':'
					if got, want := colonAt(b, from), from+bytes.IndexByte(b[from:], ':'); got != want {
						t.Fatalf("%q from %d: got %d, want %d", b, from, got, want)
					}
				}
			}
		}
		if b := bytes.Repeat([]byte{0xba}, n); colonAt(b, 0) != n {
			t.Fatalf("a colon found in %q", b)
		}
	}
}

func TestTargetEndAgreesWithItsTable(t *testing.T) {
	plain := func(b []byte, i int) int {
		for i < len(b) && isTarget[b[i]] {
			i++
		}
		return i
	}
	rng := rand.New(rand.NewPCG(7, 8))
	notable := []byte("aaaaaaaaaaaaaaa/?%!$;=:=?@\x7e\x20\x21\"#<>\x7f\x80\xa0\xff\x00\x0d")
	for n := range 50_000 {
		b := make([]byte, 1+rng.IntN(40))
		for i := range b {
			b[i] = notable[rng.IntN(len(notable)-n%14)]
		}
		b[rng.IntN(len(b))] = byte(n)
		i := rng.IntN(len(b) + 1)
		got, ascii := targetEnd(b, i)
		want := plain(b, i)
		if got != want || ascii != !bytes.ContainsFunc(b[i:want], func(r rune) bool { return r >= 0x80 }) {
			t.Fatalf("%q from %d: got %d, ascii %v, want %d", b, i, got, ascii, want)
		}
	}
}

func TestTokenTable(t *testing.T) {
	const tchar = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" // RFC 9110 section 5.6.2
	for c := range 256 {
		if want := strings.IndexByte(tchar, byte(c)) >= 0; isToken[c] != want {
			t.Errorf("isToken[%#x] = %v", c, isToken[c])
		}
	}
}

func TestTargetTable(t *testing.T) {
	for c := range 256 {
		want := c > 0x20 && c != 0x7f && c != '#'
		if isTarget[c] != want {
			t.Errorf("isTarget[%#x] = %v", c, isTarget[c])
		}
	}
}

func TestValidAuthority(t *testing.T) {
	for in, want := range map[string]bool{
		"a": true, "A-b_c.~9.": true, "127.0.0.1": true, "a:0": true, "a:65535": true, "a:00080": true, "a:": true, "[::1]": true, "[::1]:80": true,
		"[::ffff:1.2.3.4]": true, "": false, ":": false, ":1": false, "a:65536": false, "a:99999999999999999999": false, "a:+1": false, "a: 1": false,
		"a::1": false, "a@b": false, "a/b": false, "a,b": false, "a b": false, "a%20": false, "a\x00": false, "\xe9": false, "[]": false, "[a]": false,
		"[::1": false, "::1]": false, "[::1]x": false, "[[::1]]": false, "[::1%25a]": false, "[v1.a]": false, "a[::1]": false, "a'": false,
	} {
		if got := validAuthority([]byte(in)); got != want {
			t.Errorf("validAuthority(%q) = %v", in, got)
		}
	}
}

// Our own reader of IPv6 addresses exists only because net/netip wants a string. The two must agree.
func TestValidIPv6AgreesWithNetip(t *testing.T) {
	rng := rand.New(rand.NewPCG(6, 6))
	parts := []string{":", ":", ":", "::", "0", "1", "ffff", "fffff", "a", "g", "1.2.3.4", "1.2.3", "01.2.3.4", "256.1.1.1", "1.2.3.4.5", ".", "1:2:3:4:5:6"}
	valid := 0
	for range 60_000 {
		var b strings.Builder
		for range 1 + rng.IntN(12) {
			b.WriteString(parts[rng.IntN(len(parts))])
		}
		addr, err := netip.ParseAddr(b.String())
		want := err == nil && addr.Is6()
		if got := validIPv6([]byte(b.String())); got != want {
			t.Fatalf("validIPv6(%q) = %v, netip says %v (%v)", b.String(), got, want, err)
		}
		if want {
			valid++
		}
	}
	if valid < 100 {
		t.Fatalf("only %d of the addresses were valid: the comparison says nothing", valid)
	}
}

func TestValidPortAgreesWithStrconv(t *testing.T) {
	for p := -1; p < 70_000; p += 7 {
		if got, want := validPort([]byte(":"+strconv.Itoa(p))), p >= 0 && p <= 65535; got != want {
			t.Errorf("validPort(:%d) = %v", p, got)
		}
	}
}
