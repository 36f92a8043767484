package forward

import (
	"net/url"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// FuzzIsHost: a target that is taken for a host is one that net/url reads as that
// host and port too.
func FuzzIsHost(f *testing.F) {
	for _, s := range []string{"api.example", "API.example.:80", "api.example:81", "[2001:db8::1]:80", "[::1]", "127.0.0.1:", "a:080", ".", "a..", "other.example"} {
		f.Add(s, "api.example")
		f.Add(s, strings.ToLower(s))
		f.Add(s, "[2001:db8::1]")
	}
	f.Fuzz(func(t *testing.T, authority, host string) {
		for _, scheme := range []string{"http", "https"} {
			var q http1.Request
			if n, err := q.Parse([]byte("GET "+scheme+"://"+authority+"/ HTTP/1.1\r\nHost: a\r\n\r\n"), http1.Limits{}); n == 0 || err != nil || string(q.Authority) != authority {
				return
			}
			want, err := url.Parse(scheme + "://" + host)
			if err != nil || want.Host != host || !IsHost(q.Authority, q.Scheme, host) {
				return
			}
			u, err := url.Parse(scheme + "://" + authority)
			if err != nil {
				t.Fatalf("%q is %q here, and no URL elsewhere: %v", authority, host, err)
			}
			name := u.Hostname()
			if len(name) > 1 {
				name = strings.TrimSuffix(name, ".")
			}
			port := strings.TrimPrefix(u.Port(), defaultPort(scheme == "https"))
			if !strings.EqualFold(name, want.Hostname()) || u.Port() != want.Port() && (port != "" || want.Port() != "") {
				t.Fatalf("%q is taken for %q, elsewhere it is %q at %q", authority, host, u.Hostname(), u.Port())
			}
		}
	})
}
