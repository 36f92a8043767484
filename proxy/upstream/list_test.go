package upstream

import (
	"strings"
	"testing"
)

func TestListsAndServicesAreParsedAndShown(t *testing.T) {
	for in, want := range map[string]struct{ url, host string }{
		"http://a:80,http://b:8080":                           {"", "a"},
		"https://a, https://B:444/":                           {"https://a:443,https://b:444", "a"},
		"unix:/run/a,b":                                       {"", "localhost"},
		"unix:/run/a,b,unix:/c":                               {"", "localhost"},
		"http+srv://_http._tcp.app.example":                   {"", "app.example"},
		"https+srv://_https._tcp.app.example,https+srv://x.y": {"", "app.example"},
		"h2c+srv://_grpc._tcp.App.Example/":                   {"h2c+srv://_grpc._tcp.app.example", "app.example"},
		"h2+srv://app.example":                                {"", "app.example"},
	} {
		target, err := ParseTarget(in)
		if want.url == "" {
			want.url = in
		}
		if err != nil || target.String() != want.url || target.Host != want.host {
			t.Errorf("%s: %s, host %s, %v; want %s, %s", in, target, target.Host, err, want.url, want.host)
		}
		if target.TLS != nil && target.TLS.ServerName != want.host {
			t.Errorf("%s: certificates are for %s", in, target.TLS.ServerName)
		}
		again, err := ParseTarget(target.String())
		if err != nil || again.Key() != target.Key() {
			t.Errorf("%s is read as %s, %v", target, again, err)
		}
	}
}

func TestListsAndServicesThatAreRefused(t *testing.T) {
	for in, say := range map[string]string{
		"http://a,http://a:80":                       "is listed twice",
		"http://a,https://a":                         "the same scheme",
		"http://a,unix:/a":                           "the same scheme",
		"http://a,h2c://a":                           "the same scheme",
		"http://a,b:80":                              `"b:80": the scheme is missing`,
		"http://a,":                                  `"": an address is empty`,
		"http://a,http://b:0":                        "port 0",
		"http+srv://_http._tcp.a:80":                 "contain the port",
		"http+srv://10.0.0.1":                        "SRV records need a name",
		"unix+srv://a":                               "the scheme is not http",
		"http://u:secret@a,http://b":                 "password",
		strings.Repeat("http://a,", 64) + "http://b": "more than 64",
	} {
		_, err := ParseTarget(in)
		if err == nil || !strings.Contains(err.Error(), say) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want it to say %q", in, err, say)
		}
	}
}

func TestKeysTellListsAndServicesApart(t *testing.T) {
	seen := map[string]string{}
	for _, in := range []string{"http://a", "http://a,http://b", "http://b,http://a", "http+srv://a", "h2c+srv://a", "http://a,http://b,http://c"} {
		target, err := ParseTarget(in)
		if err != nil {
			t.Fatal(err)
		}
		if other, known := seen[target.Key()]; known {
			t.Errorf("%s and %s have one key", in, other)
		}
		seen[target.Key()] = in
	}
}

func TestAListIsLocalWhenAllOfItIs(t *testing.T) {
	for in, want := range map[string]bool{"http://localhost,http://127.0.0.2": true, "http://localhost,http://a": false, "http://a,http://localhost": false, "http+srv://_http._tcp.localhost": true, "http+srv://_http._tcp.a": false} {
		if target, err := ParseTarget(in); err != nil || target.Local() != want {
			t.Errorf("%s: %v, %v", in, target.Local(), err)
		}
	}
}
