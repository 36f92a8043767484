package forward

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// headerLines makes a header section of lines: CRLF for LF, without the indentation.
func headerLines(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

func parseRequest(t testing.TB, section string) *http1.Request {
	t.Helper()
	r := new(http1.Request)
	n, err := r.Parse([]byte(section+"\r\n"), http1.Limits{})
	if err != nil || n != len(section)+2 {
		t.Fatalf("parse %q: n = %d, err = %v", section, n, err)
	}
	return r
}

func parseResponse(t testing.TB, section, method string) *http1.Response {
	t.Helper()
	r := new(http1.Response)
	n, err := r.Parse([]byte(section+"\r\n"), http1.Limits{}, []byte(method))
	if err != nil || n != len(section)+2 {
		t.Fatalf("parse %q: n = %d, err = %v", section, n, err)
	}
	return r
}

// client is a peer that nothing is configured about.
func client(addr string) Peer {
	a := netip.MustParseAddr(addr)
	return Peer{Addr: a, Text: a.WithZone("").String()}
}

// nobody is a peer without address, so that no X-Forwarded-For gets in the way.
var nobody = Peer{Text: "unix", Trusted: true}

func compare(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", strings.ReplaceAll(got, "\r\n", "␍\n"), strings.ReplaceAll(want, "\r\n", "␍\n"))
	}
}

func TestTrustedProxies(t *testing.T) {
	var prefixes []netip.Prefix
	for _, s := range []string{"10.1.2.3/8", "2001:db8::/32", "::ffff:192.0.2.0/120", "fe80::/10"} {
		prefixes = append(prefixes, netip.MustParsePrefix(s))
	}
	trust := NewTrust(append(prefixes, netip.Prefix{}))
	for addr, want := range map[string]bool{
		"10.255.0.1":         true,
		"::ffff:10.255.0.1":  true,
		"11.0.0.1":           false,
		"2001:db8::7":        true,
		"2001:db9::7":        false,
		"192.0.2.9":          true,
		"192.0.3.9":          false,
		"fe80::1%eth0":       true,
		"::ffff:192.0.2.200": true,
		"::1":                false,
	} {
		if got := trust.Trusted(netip.MustParseAddr(addr)); got != want {
			t.Errorf("Trusted(%s) = %v, want %v", addr, got, want)
		}
	}
	if trust.Trusted(netip.Addr{}) || (Trust{}).Trusted(netip.MustParseAddr("10.0.0.1")) {
		t.Error("no address, or no set, is trusted")
	}
}

func TestControlHeadersOnlyFromTrustedPeersOrThisMachine(t *testing.T) {
	for _, c := range []struct {
		name string
		peer Peer
		kept bool
	}{
		{"stranger", client("192.0.2.1"), false},
		{"loopback", client("127.0.0.1"), true},
		{"loopback 6", client("::1"), true},
		{"loopback where proxies are configured", Peer{Addr: netip.MustParseAddr("127.0.0.1"), TrustConfigured: true}, false},
		{"trusted", Peer{Addr: netip.MustParseAddr("192.0.2.1"), Trusted: true, TrustConfigured: true}, true},
		{"unix", nobody, true},
		{"unknown", Peer{}, false},
	} {
		r := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: a", "X-Retryproxy-Attempt: 7", "x-retryproxy-timeout: 3",
			"X-Retryproxy-Attempts: 2", "X_Retryproxy_Attempt: 1"))
		got := string(AppendRequestHeaders(nil, r, &Settings{}, &c.peer, nil, nil))
		if kept := strings.Contains(got, "x-retryproxy-timeout: 3\r\nX-Retryproxy-Attempts: 2\r\n"); kept != c.kept {
			t.Errorf("%s: kept = %v, want %v", c.name, kept, c.kept)
		}
		if strings.Contains(got, "Attempt: ") || strings.Contains(got, "X_") {
			t.Errorf("%s: the client's attempt got through:\n%s", c.name, got)
		}
	}
}

func TestCheckNamesAllMistakes(t *testing.T) {
	good := []Settings{
		{},
		{Host: HostRule{Name: "a.example:80"}, UpstreamHost: "[::1]:9", StripPrefix: "/api/v1/"},
		{StripPrefix: "/"},
		{StripPrefix: "/caf%C3%A9"},
	}
	for _, s := range good {
		if err := s.Check(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
	bad := Settings{Host: HostRule{Name: "a b"}, UpstreamHost: "a\r\nX: y", StripPrefix: "api"}
	if err := bad.Check(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want 3 errors, got %v", err)
	}
	for _, p := range []string{"//", "/a//b", "/a/../b", "/.", "/a%2fb", "/a%2E", "/a;b", `/a\b`, "/a?b", "/a b", "/a/*", "/é"} {
		if err := (&Settings{StripPrefix: p}).Check(); err == nil {
			t.Errorf("prefix %q passes", p)
		}
	}
}
