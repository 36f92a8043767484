package admin

import (
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

const secret = "0123456789abcdef"

// ask sends a request as if it came from an address, with fields such as "Host: x".
func ask(access Access, line, from string, fields ...string) *httptest.ResponseRecorder {
	done := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { say(w, 200, "done") })
	handler := New(Options{
		Metrics: done, Ready: func() error { return nil }, Config: func() any { return 1 }, Drain: func() {}, Quit: func() {},
		RetryPercent: RetryPercent{Get: func() int { return 1 }, Set: func(int) {}}, Page: done, Access: access,
	}).http.Handler
	method, path, _ := strings.Cut(line, " ")
	r := httptest.NewRequest(method, path, strings.NewReader("7"))
	r.RemoteAddr = from
	r.Header.Set("Content-Type", "application/json")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

var (
	reads  = []string{"GET /", "HEAD /", "GET /page/state.json", "GET /config", "GET /retry-percent"}
	writes = []string{"POST /drain", "POST /quit", "POST /retry-percent", "GET /debug/pprof/cmdline"}
)

// expect checks that those who ask in one way may read, or write, or neither.
func expect(t *testing.T, access Access, mayRead, mayWrite bool, from string, fields ...string) {
	t.Helper()
	for may, lines := range map[*bool][]string{&mayRead: reads, &mayWrite: writes} {
		for _, line := range lines {
			if w := ask(access, line, from, fields...); (w.Code < 300) != *may || w.Code == 500 {
				t.Errorf("%s from %s, %q: %d %q, want allowed %v", line, from, fields, w.Code, w.Body, *may)
			}
		}
	}
}

func TestAllowedNetworksMayReadAndNotWrite(t *testing.T) {
	access := Access{Allow: []netip.Prefix{netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("fe80::/10")}}
	for _, host := range []string{"localhost:9797", "127.0.0.1:9797", "10.1.2.3:9797", "[fd00::1]:9797"} {
		expect(t, access, true, false, "172.17.0.1:5000", "Host: "+host)
	}
	expect(t, access, true, false, "[::ffff:172.17.0.1]:5000", "Host: localhost")
	expect(t, access, true, false, "[fe80::1%eth0]:5000", "Host: localhost")
	expect(t, access, true, true, "127.0.0.1:5000", "Host: localhost")
	for name, refused := range map[string][]string{
		"elsewhere":       {"172.32.0.1:5000", "Host: localhost"},
		"rebound":         {"172.17.0.1:5000", "Host: evil.example"},
		"an address's":    {"172.17.0.1:5000", "Host: 10.0.0.1.nip.io"},
		"another site":    {"172.17.0.1:5000", "Host: localhost", "Sec-Fetch-Site: cross-site"},
		"another origin":  {"172.17.0.1:5000", "Host: localhost", "Origin: http://evil.example"},
		"a proxy":         {"172.17.0.1:5000", "Host: localhost", "X-Forwarded-For: 1.2.3.4"},
		"a token of none": {"10.0.0.1:5000", "Host: localhost", "Authorization: Bearer " + secret},
		"no address":      {"@", "Host: localhost"},
	} {
		t.Run(name, func(t *testing.T) { expect(t, access, false, false, refused[0], refused[1:]...) })
	}
}

func TestWhoHasTheTokenMayReadAndWrite(t *testing.T) {
	access := Access{Token: func() (string, error) { return secret, nil }}
	basic := "Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+secret))
	for _, given := range []string{"Authorization: Bearer " + secret, "Authorization: bearer  " + secret, basic} {
		expect(t, access, true, true, "203.0.113.1:5000", "Host: proxy.example", given)
		expect(t, access, true, true, "203.0.113.1:5000", "Host: proxy.example", given, "X-Forwarded-For: 1.2.3.4")
		expect(t, access, false, false, "203.0.113.1:5000", "Host: proxy.example", given, "Sec-Fetch-Site: cross-site")
		expect(t, access, false, false, "203.0.113.1:5000", "Host: proxy.example", given, "Origin: http://evil.example")
		expect(t, access, false, false, "203.0.113.1:5000", "Host: proxy.example", given, "Origin: https://evil.example")
		expect(t, access, true, true, "203.0.113.1:5000", "Host: proxy.example", given, "Origin: https://proxy.example") // TLS ends in front of it
	}
	expect(t, access, true, true, "127.0.0.1:5000", "Host: localhost") // as without one
	for _, given := range []string{"", "Bearer", "Bearer ", "Bearer " + secret + "x", "Bearer " + secret[1:], secret, "Basic " + secret, "Digest " + secret} {
		fields := []string{"Host: localhost"}
		if given != "" {
			fields = append(fields, "Authorization: "+given)
		}
		expect(t, access, false, false, "203.0.113.1:5000", fields...)
		if w := ask(access, "GET /config", "203.0.113.1:5000", fields...); w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %d, WWW-Authenticate %q", given, w.Code, w.Header().Get("WWW-Authenticate"))
		}
	}
}

func TestATokenThatCannotBeReadOpensNothing(t *testing.T) {
	access := Access{Token: func() (string, error) { return "", errors.New("the file is gone") }}
	for _, given := range []string{"Bearer ", "Bearer x", "Basic " + base64.StdEncoding.EncodeToString([]byte("a:"))} {
		if w := ask(access, "GET /config", "203.0.113.1:5000", "Host: localhost", "Authorization: "+given); w.Code != 500 || w.Body.String() != "the file is gone\n" {
			t.Errorf("%q: %d %q", given, w.Code, w.Body)
		}
	}
}
