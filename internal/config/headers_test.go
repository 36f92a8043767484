package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

func TestHeaderFieldsAreSplitAtNames(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "none",
		" none ":                        "none",
		"X-Env: prod":                   "X-Env: prod",
		"X-Env:prod , X-B:  1  ":        "X-Env: prod, X-B: 1",
		"Cache-Control: no-store, a=1":  "Cache-Control: no-store, a=1",
		"Cache-Control: no-store,X-B:1": "Cache-Control: no-store, X-B: 1",
		"Date: Mon, 01 Jan 2026 12:00:00 GMT, Link: <http://a>, <http://b>": "Date: Mon, 01 Jan 2026 12:00:00 GMT, Link: <http://a>, <http://b>",
		"Set-Cookie: a=1, Set-Cookie: b=ü":                                  "Set-Cookie: a=1, Set-Cookie: b=ü",
	} {
		got, err := parseHeaderFields(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if got.String() != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"X-Env":                 "must be a name, a colon and a value",
		"X Env: prod":           "must be a name, a colon and a value",
		": prod":                "must be a name, a colon and a value",
		"X-Env:":                "has no value after the colon",
		"X-Env: , X-B: 1":       "has no value after the colon",
		"X-Env: a\r\nX-Evil: 1": "control character",
		"X-Env: a\x00":          "control character",
		"A: " + strings.Repeat("x", maxSetHeaders): "more than 8192 bytes",
	} {
		if _, err := parseHeaderFields(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

// An error about a file of secrets names the line, and of its content only header names.
func TestAFileOfHeaders(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	for content, tc := range map[string]struct {
		want []http1.Header
		says string
	}{
		"": {},
		"# a key\r\nAuthorization: Bearer hidden, with: more\r\n\n  X-B: 2": {want: []http1.Header{http1.NewHeader("Authorization", "Bearer hidden, with: more"), http1.NewHeader("X-B", "2")}},
		"X-A: 1\nhidden\n":                       {says: "line 2 must be a name"},
		"X-A: 1\n\nX-B: hidden\x01\n":            {says: "line 3 has a control character"},
		"Host: hidden\n":                         {says: "line 1: Host cannot be set: RETRYPROXY_UPSTREAM_HOST sets this header"},
		strings.Repeat("x", maxSetHeaders) + "x": {says: "the file has more than 8192 bytes"},
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Build(load(t, "UPSTREAM=https://a.example", "REQUEST_HEADERS_FILE="+file))
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(), "RETRYPROXY_REQUEST_HEADERS_FILE=") || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%.40q: %v, want %q", content, err, tc.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%.40q: %v", content, err)
			continue
		}
		if got, want := c.Default.Forward.Changes, forward.NewHeaderChanges(tc.want, nil); !reflect.DeepEqual(got, want) {
			t.Errorf("%.40q: %q, want %q", content, got, want)
		}
	}
}

// A secret is only sent to its upstream: to no other route, and to no fallback.
func TestSecretHeadersStayWithTheirUpstream(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("Authorization: Bearer hidden\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := configOf(t, "UPSTREAM=https://a.example", "FALLBACK=http://b.example", "REQUEST_HEADERS_FILE="+file, "REQUEST_HEADERS_SET=X-Env: prod, authorization: open", "REQUEST_HEADERS_REMOVE=Cookie",
		"ROUTES=same,other", "ROUTE_SAME_PATH=/same", "ROUTE_SAME_RESPONSE_HEADERS_SET=X-A: 1", "ROUTE_SAME_RESPONSE_HEADERS_REMOVE=Server", "ROUTE_OTHER_PATH=/other", "ROUTE_OTHER_UPSTREAM=https://c.example")
	open := []http1.Header{http1.NewHeader("X-Env", "prod"), http1.NewHeader("authorization", "open")}
	without := forward.NewHeaderChanges(open, []string{"Cookie"})
	with := without.And([]http1.Header{http1.NewHeader("Authorization", "Bearer hidden")})
	public := forward.NewHeaderChanges(open[:1], []string{"Cookie"}).Hiding(with) // not even the client's own value is sent there
	same, other := c.Routes[0], c.Routes[1]
	for name, is := range map[string][2]forward.HeaderChanges{
		"default":          {c.Default.Forward.Changes, with},
		"fallback":         {c.Default.Fallbacks[0].Forward.Changes, public},
		"the same":         {same.Forward.Changes, with},
		"another upstream": {other.Forward.Changes, without},
		"responses":        {same.ResponseChanges, forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-A", "1")}, []string{"Server"})},
		"of no route":      {c.Default.ResponseChanges, forward.HeaderChanges{}},
	} {
		if !reflect.DeepEqual(is[0], is[1]) {
			t.Errorf("%s: %q, want %q", name, is[0], is[1])
		}
	}
}

// A header that a route hides from its upstream, or replaces, is not sent to its fallback route.
func TestAFallbackGetsNothingThatTheRouteHides(t *testing.T) {
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("Authorization: Bearer first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := configOf(t, "UPSTREAM=https://a.example", "FALLBACK=route:b", "REQUEST_HEADERS_FILE="+file, "REQUEST_HEADERS_REMOVE=X-User", "REQUEST_HEADERS_SET=X-Env: prod",
		"ROUTES=b", "ROUTE_B_UPSTREAM=https://b.example", "ROUTE_B_REQUEST_HEADERS_SET=X-Api-Key: b", "ROUTE_B_REQUEST_HEADERS_REMOVE=none")
	want := forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-Api-Key", "b")}, []string{"X-Env", "X-User", "Authorization"})
	if got := c.Default.Fallbacks[0].Forward.Changes; !sameHeaders(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// sameHeaders compares changes by their effect on a request with all these headers.
func sameHeaders(a, b forward.HeaderChanges) bool {
	write := func(c forward.HeaderChanges) string {
		r := &http1.Request{Method: []byte("GET"), Path: []byte("/")}
		for _, name := range []string{"Authorization", "X-User", "X-Env", "X-Api-Key", "X-Kept"} {
			r.Headers = append(r.Headers, http1.NewHeader(name, "client"))
		}
		return string(forward.AppendRequestHeaders(nil, r, &forward.Settings{Changes: c}, &forward.Peer{}, nil, nil))
	}
	return write(a) == write(b)
}

func TestSecretHeadersAreNotShown(t *testing.T) {
	s, _ := Load([]string{minimal, "RETRYPROXY_REQUEST_HEADERS_SET=X-Env: prod, Authorization: Bearer geheim, X-Api-Key: geheim"})
	if got, want := find(nil, s.Default.Values(), "REQUEST_HEADERS_SET").Text, "X-Env: prod, Authorization: ***, X-Api-Key: ***"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if s.Default.RequestHeadersSet[1].Value != "Bearer geheim" {
		t.Error("what is sent is masked too")
	}
	for _, value := range []string{"Authorization=geheim", "Authorization: geheim\x01", "geheim"} {
		if got := problemsOf(minimal, "RETRYPROXY_REQUEST_HEADERS_SET="+value); strings.Contains(strings.Join(got, "\n"), "geheim") || len(got) != 1 {
			t.Errorf("%q: %q", value, got)
		}
	}
	wantLines(t, problemsOf(minimal, "RETRYPROXY_REQUEST_HEADERS_SET=Authorization: x"), `warning: RETRYPROXY_REQUEST_HEADERS_SET="Authorization": sounds like a secret`)
}
