package configfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFileLines(t *testing.T) {
	for line, want := range map[string]string{
		`A=b`:              "b",
		"A=b\r":            "b",
		"\xef\xbb\xbfA=b":  "b",
		` A = b c `:        "b c",
		`A=b # c`:          "b # c",
		`A="b # c" # d`:    "b # c",
		`A='b\n"' # d`:     `b\n"`,
		`A="b\n\t\"\\\$x"`: "b\n\t\"\\$x",
		`A=a=b`:            "a=b",
		`A=`:               "",
		`A=$HOME`:          "$HOME",
	} {
		got, err := Read(write(t, "env", line))
		if err != nil || len(got) != 1 || got[0].Name != "A" || got[0].Value != want {
			t.Errorf("%q: %+v %v, want %q", line, got, err, want)
		}
	}
}

func TestYAMLSaysWhatVariablesSay(t *testing.T) {
	const content = `# a comment
upstream: http://app:3000
max_retries: 3
budget_ratio: 20%
retry_on: [5xx, connection]
access_log: true
via: ""
request_headers_set:
  X-Env: prod
  X-Team: &team search
fallback: 503:busy
backoff_base: ~
routes:
  - name: user-api
    path:
      - /users/*
      - /accounts/*
    max_retries: 0
  - plain
`
	want := []Pair{
		{"RETRYPROXY_UPSTREAM", "http://app:3000", 2, "upstream"},
		{"RETRYPROXY_MAX_RETRIES", "3", 3, "max_retries"},
		{"RETRYPROXY_BUDGET_RATIO", "20%", 4, "budget_ratio"},
		{"RETRYPROXY_RETRY_ON", "5xx,connection", 5, "retry_on"},
		{"RETRYPROXY_ACCESS_LOG", "true", 6, "access_log"},
		{"RETRYPROXY_VIA", "", 7, "via"},
		{"RETRYPROXY_REQUEST_HEADERS_SET", "X-Env: prod, X-Team: search", 8, "request_headers_set"},
		{"RETRYPROXY_FALLBACK", "503:busy", 11, "fallback"},
		{"RETRYPROXY_BACKOFF_BASE", "", 12, "backoff_base"},
		{"RETRYPROXY_ROUTE_USER_API_", "", 14, "routes[0]"},
		{"RETRYPROXY_ROUTE_USER_API_PATH", "/users/*,/accounts/*", 15, "routes[0].path"},
		{"RETRYPROXY_ROUTE_USER_API_MAX_RETRIES", "0", 18, "routes[0].max_retries"},
		{"RETRYPROXY_ROUTE_PLAIN_", "", 19, "routes[1]"},
		{"RETRYPROXY_ROUTES", "user-api,plain", 13, "routes"},
	}
	got, err := Read(write(t, "retryproxy.yaml", content))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
	}
}

func TestWhatIsWrongInYAMLIsNamedByItsLine(t *testing.T) {
	for content, want := range map[string]string{
		"- a":                       "line 1: expected settings, such as upstream: http://app:3000",
		"a: b: c":                   "line 1: a name with a value cannot stand here; check the indentation, and quote a value that has a colon",
		"a: 1\n---\nb: 2":           "expected one YAML document, found more",
		"maxRetries: 3":             `line 1: "maxRetries" is not the name of a setting; did you mean max_retries?`,
		"RETRYPROXY_VIA: a":         `line 1: "RETRYPROXY_VIA" is not the name of a setting`,
		"via: a\nvia: b":            "line 2: via is already set in line 1",
		"retry_on: [[a]]":           "line 1: retry_on: expected a value, a list of values or name: value lines",
		"retry_on:\n  a:\n    b: c": "line 2: retry_on: expected a value",
		"routes:\n  - path: /a":     "line 2: expected a route with a name, such as - name: search",
		"routes:\n  - [a]":          "line 2: expected a route with a name",
		"routes:\n  a:\n    via: b": "line 2: routes: expected a list of routes, such as - name: search",
		"a: 1\n b: 2":               "line 2: a name with a value cannot stand here; check the indentation",
		"a:\n\t- 1":                 "line 2: found character that cannot start any token; indent with spaces, not with tabs, and quote a value that begins with @ or a backtick",
		"routes:\n  - name: a\n    via: secret\n    via: b": "line 4: routes[0].via is already set in line 3",
		"via: &secret":                      "line 1: via: expected a value",
		"via: !secret":                      "line 1: via: expected a value",
		"retry_on: [&secret , a]":           "line 1: retry_on: expected a value",
		"via: &x a\n*x : b":                 "line 2: expected the name of a setting",
		"routes:\n  - name: a\n    name: b": "line 3: the route has two names",
		"a: *secret":                        "line 1: put quotes around a value that begins with *",
		"b: 1\na: *x":                       "line 2: put quotes around a value that begins with *",
		"a: 1\n<<: {b: 2}":                  `line 2: "<<" is not the name of a setting`,
	} {
		got, err := Read(write(t, "x.yml", content))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %+v, %v; want %q", content, got, err, want)
		}
	}
	for _, empty := range []string{"", "# nothing", "~", "{}", "---\n"} {
		if got, err := Read(write(t, "x.yaml", empty)); err != nil || len(got) > 0 {
			t.Errorf("%q: %+v, %v", empty, got, err)
		}
	}
}

// An editor shows the line that is wrong, not the one where the library gave up.
func TestAnUnclosedQuoteIsNamedByItsLine(t *testing.T) {
	const head = "upstream: http://app:3000\nmax_retries: 3\n"
	for content, want := range map[string]string{
		"via: \"secret\nretry_on: 5xx\n\nmax_clients: 10\n":  "line 3: the closing quote is missing",
		"via: 'secret\nretry_on: 5xx\n":                      "line 3: the closing quote is missing",
		"via: \"secret":                                      "line 3: the closing quote is missing",
		"via: \"secret\nmax_retries: 3\nretry_on: \"5xx\"\n": "line 3: the closing quote is missing",
		"via: 'secret\nretry_on: ['5xx', '429']\n":           "line 3: the closing quote is missing",
		"retry_on:\n  - \"5xx\n  - \"429\"\n":                "line 4: the closing quote is missing",
		"via: \"sec\\qret\"\n":                               "line 3: found unknown escape character",
		"retry_on: [5xx, connection\nvia: a\n":               "line 3: did not find expected ',' or ']'",
		"retry_on: {a: b\n\n\n":                              "line 3: did not find expected ',' or '}'",
		"via\nretry_on: 5xx\n":                               "line 3: could not find expected ':'",
		// The library takes the next quote for the end of this one.
		"via: \"secret\nhost: \"b\"\n": "line 3: the closing quote is missing",
	} {
		got, err := Read(write(t, "x.yaml", head+content))
		if err == nil || err.Error() != want {
			t.Errorf("%q: %+v, %v; want %q", content, got, err, want)
		}
	}
}

// The YAML that is written is read as the same text.
func TestYAMLKeepsEveryText(t *testing.T) {
	for _, text := range []string{"a", "off", "true", "1e3", "007", "0x1f", "~", "a # b", " a ", `"a`, "'a'", "a: b", "[a", "a\nb", "\ta", "é", "{", "*x", "- a", `a\b`, "null", "2001-01-01", "503:busy"} {
		file := write(t, "x.yaml", string(MarshalYAML(Settings{Values: []Value{{Key: "via", Text: text}}})))
		if got, err := Read(file); err != nil || len(got) != 1 || got[0].Value != text {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A value stays in one line, however long, so that a search finds it.
func TestWrittenLinesAreNotFolded(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("POST /orders ", 20))
	if got, want := string(MarshalYAML(Settings{Values: []Value{{Key: "paths", Text: long}}})), "paths: "+long+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("A=b\nB=\"c\\n\"\n", false)
	f.Add("# x\nA='b'", false)
	f.Add("a: &x [b, c]\nroutes: [{name: d, e: *x}]\n", true)
	f.Add("a: &a\n  b: *a\n", true)
	f.Fuzz(func(t *testing.T, content string, asYAML bool) {
		var list pairs
		if asYAML {
			list.addYAML([]byte(content))
		} else {
			list.addLines([]byte(content))
		}
		seen := map[string]bool{}
		for _, p := range list.pairs {
			if seen[p.Name] || p.Line < 1 || p.Line > strings.Count(content, "\n")+strings.Count(content, "\r")+1 {
				t.Errorf("%+v of %q (%v)", p, content, list.errs)
			}
			seen[p.Name] = true
		}
	})
}
