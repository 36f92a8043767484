package upstream

import (
	"crypto/tls"
	"strings"
	"testing"
)

func TestParseTargetReadsWhatItAllows(t *testing.T) {
	for _, c := range []struct {
		in, network, address, host, str string
		sni                             string // "" = no TLS
		local                           bool
	}{
		{in: "http://example.com", network: "tcp", address: "example.com:80", host: "example.com", str: "http://example.com:80"},
		{in: "http://Example.COM:8080/", network: "tcp", address: "example.com:8080", host: "example.com:8080", str: "http://example.com:8080"},
		{in: "HTTP://a_b-c.d:0080", network: "tcp", address: "a_b-c.d:80", host: "a_b-c.d", str: "http://a_b-c.d:80"},
		{in: "https://example.com", network: "tcp", address: "example.com:443", host: "example.com", str: "https://example.com:443", sni: "example.com"},
		{in: "h2c://example.com", network: "tcp", address: "example.com:80", host: "example.com", str: "h2c://example.com:80"},
		{in: "h2://example.com", network: "tcp", address: "example.com:443", host: "example.com", str: "h2://example.com:443", sni: "example.com"},
		{in: "https://example.com.:8443", network: "tcp", address: "example.com.:8443", host: "example.com:8443", str: "https://example.com.:8443", sni: "example.com"},
		{in: "https://10.1.2.3:80", network: "tcp", address: "10.1.2.3:80", host: "10.1.2.3:80", str: "https://10.1.2.3:80", sni: "10.1.2.3"},
		{in: "http://[::1]:80", network: "tcp", address: "[::1]:80", host: "[::1]", str: "http://[::1]:80", local: true},
		{in: "https://[2001:db8::1]", network: "tcp", address: "[2001:db8::1]:443", host: "[2001:db8::1]", str: "https://[2001:db8::1]:443", sni: "2001:db8::1"},
		{in: "http://[fe80::1%25Eth0]:81", network: "tcp", address: "[fe80::1%Eth0]:81", host: "[fe80::1]:81", str: "http://[fe80::1%Eth0]:81"},
		{in: "http://localhost:3000", network: "tcp", address: "localhost:3000", host: "localhost:3000", str: "http://localhost:3000", local: true},
		{in: "http://app.localhost.:3000", network: "tcp", address: "app.localhost.:3000", host: "app.localhost:3000", str: "http://app.localhost.:3000", local: true},
		{in: "http://127.8.9.1", network: "tcp", address: "127.8.9.1:80", host: "127.8.9.1", str: "http://127.8.9.1:80", local: true},
		{in: "http://notlocalhost", network: "tcp", address: "notlocalhost:80", host: "notlocalhost", str: "http://notlocalhost:80"},
		{in: "http://example.com/v1.2/a-b_c~/", network: "tcp", address: "example.com:80", host: "example.com", str: "http://example.com:80/v1.2/a-b_c~"},
		{in: "http://a/v2,http://b:81/v2/", network: "tcp", address: "a:80", host: "a", str: "http://a:80/v2,http://b:81/v2"},
		{in: "http+srv://_http._tcp.a.test/v2", network: "tcp", address: "_http._tcp.a.test", host: "a.test", str: "http+srv://_http._tcp.a.test/v2"},
		{in: "unix:/run/app.sock", network: "unix", address: "/run/app.sock", host: "localhost", str: "unix:/run/app.sock", local: true},
		{in: "unix:///run/a b?c", network: "unix", address: "/run/a b?c", host: "localhost", str: "unix:/run/a b?c", local: true},
	} {
		got, err := ParseTarget(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got.Network != c.network || got.Address != c.address || got.Host != c.host || got.String() != c.str || got.Local() != c.local {
			t.Errorf("%s: %s %s, Host %s, String %s, Local %v", c.in, got.Network, got.Address, got.Host, got, got.Local())
		}
		if (got.TLS != nil) != (c.sni != "") || got.TLS != nil && got.TLS.ServerName != c.sni {
			t.Errorf("%s: TLS %+v, want server name %q", c.in, got.TLS, c.sni)
		}
	}
}

func TestParseTargetRefusesTheRestAndSaysWhy(t *testing.T) {
	for in, want := range map[string]string{
		"":                                  "an address is empty",
		"localhost:3000":                    "did you mean http://localhost:3000?",
		"example.com":                       "did you mean http://example.com?",
		"ftp://example.com":                 "the scheme is not http",
		"http:example.com":                  "// is missing",
		"http:///":                          "host is missing",
		"http://:80":                        "host is missing",
		"http://a:":                         "port is missing",
		"http://a:0":                        "port 0 is not",
		"http://a:65536":                    "port 65536 is not",
		"http://a:b":                        "the port is not a number",
		"http://user@a":                     "a user and a password",
		"http://user:secret@a":              "a user and a password",
		"http://a//":                        "must be made of segments",
		"http://a/api//x":                   "must be made of segments",
		"http://a/api/../x":                 "must be made of segments",
		"https://a/api/.":                   "must be made of segments",
		"http://a/a%2fb":                    "must be made of segments",
		"http://a/a;b":                      "must be made of segments",
		"http://a/caf\u00e9":                "must be made of segments",
		"http://a/x,http://b/y":             "all addresses of a list must have the same path",
		"http://a/x,http://b":               "all addresses of a list must have the same path",
		"http://a?":                         "a query is not",
		"http://a/?x=1":                     "a query is not",
		"http://a#":                         "a fragment (#) is not",
		"http://a/#x":                       "a fragment (#) is not",
		"http://a..b":                       "label that is empty",
		"http://.":                          "label that is empty",
		"http://" + strings.Repeat("a", 64): "longer than 63",
		"http://" + strings.Repeat("a.", 128) + "a": "longer than 253",
		"http://b\u00fccher.example":                "xn--",
		"http://a*":                                 "no host name has",
		"http://a%2eb%20":                           "is not a URL",
		"unix:":                                     "must be absolute",
		"unix:/":                                    "must be absolute",
		"unix:app.sock":                             "must be absolute",
		"unix:@abstract":                            "must be absolute",
		"unix://host/path":                          "must be absolute",
		"unix:/a\x00b":                              "zero byte",
		"unix:/" + strings.Repeat("a", 107):         "unix socket allows 107",
	} {
		got, err := ParseTarget(in)
		if err == nil {
			t.Errorf("%q: accepted as %s", in, got)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q in it", in, err, want)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the message shows the password: %v", in, err)
		}
	}
}

func TestKeyIsEqualOnlyForWhatMayShareAPool(t *testing.T) {
	parse := func(s string) Target {
		t.Helper()
		target, err := ParseTarget(s)
		if err != nil {
			t.Fatal(err)
		}
		return target
	}
	for _, same := range [][2]string{
		{"http://a", "http://A:80/"}, {"https://a", "https://a:443"}, {"unix:/a", "unix:///a"},
	} {
		if a, b := parse(same[0]), parse(same[1]); a.Key() != b.Key() {
			t.Errorf("%s and %s: keys %s and %s differ", same[0], same[1], a.Key(), b.Key())
		}
	}
	own, other := parse("http://a"), parse("http://a")
	own.TLS, other.TLS = &tls.Config{}, &tls.Config{}
	seen := map[string]string{}
	for name, target := range map[string]Target{
		"plain": parse("http://a"), "port": parse("http://a:81"), "tls": parse("https://a:80"),
		"unix": parse("unix:/a:80"), "own tls": own, "other tls": other,
	} {
		if before, ok := seen[target.Key()]; ok {
			t.Errorf("%s and %s share the key %s", before, name, target.Key())
		}
		seen[target.Key()] = name
	}
}

// Whatever is accepted reads back as itself from its own text.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"http://a", "https://[::1]:8", "unix:/a", "http://u:p@a/b?c#d", "http://[fe80::1%25e]", "http://::1", "http://[1.2.3.4]:5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseTarget(s)
		if err != nil {
			return
		}
		if a.Network == "" || a.Address == "" || a.Host == "" || strings.ContainsAny(a.Host, "\r\n \x00/@?#") {
			t.Fatalf("%q: accepted as %q, Host %q", s, a.Address, a.Host)
		}
		text := strings.ReplaceAll(a.String(), "%", "%25")
		if a.Network == "unix" {
			text = a.String()
		}
		b, err := ParseTarget(text)
		if err != nil || b.Key() != a.Key() || b.Host != a.Host {
			t.Fatalf("%q reads as %s; that again as %s, %v", s, a, b, err)
		}
	})
}
