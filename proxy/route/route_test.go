package route

import (
	"fmt"
	"strings"
	"testing"
)

// headers is a header for tests; names are lower case.
type headers map[string]string

func (f headers) Lookup(name string) ([]byte, bool) {
	v, ok := f[strings.ToLower(name)]
	return []byte(v), ok
}

// build makes a table whose values are the names of the rules, in order.
func build(t testing.TB, rules ...Rule[string]) *Table[string] {
	t.Helper()
	for i := range rules {
		if rules[i].Name == "" {
			rules[i].Name = fmt.Sprint("r", i)
		}
		rules[i].Value = rules[i].Name
	}
	table, err := New(rules, "default")
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func rule(name string, m Match) Rule[string] { return Rule[string]{Match: m, Name: name} }

func TestPath(t *testing.T) {
	table := build(t,
		rule("root", Match{Path: "/"}),
		rule("search", Match{Path: "/search/*"}),
		rule("exact", Match{Path: "/search/exact"}),
		rule("slashed", Match{Path: "/search/slashed/"}),
		rule("deep", Match{Path: "/search/deep/er/*"}),
		rule("café", Match{Path: "/café/*"}),
		rule("space", Match{Path: "/a%20b"}),
		rule("dots", Match{Path: "/v1.2/..x/..."}),
	)
	for path, want := range map[string]string{
		"/":                            "root",
		"/search":                      "search",
		"/search/":                     "search",
		"/search/x/y":                  "search",
		"/searching":                   "default",
		"/Search":                      "default",
		"/search/exact":                "exact",
		"/search/exact/":               "search",
		"/search/exact/x":              "search",
		"/search/slashed":              "search",
		"/search/slashed/":             "slashed",
		"/search/deep":                 "search",
		"/search/deep/er":              "deep",
		"/search/deep/er/x":            "deep",
		"/search/deep/err":             "search",
		"/caf%C3%A9/x":                 "café",
		"/caf%c3%a9":                   "café",
		"/caf%C3":                      "default",
		"/%73earch/%65xact":            "exact",
		"/search%2Fexact":              "default",
		"/a%20b":                       "space",
		"/v1.2/..x/...":                "dots",
		"*":                            "default",
		"":                             "default",
		"/search/%":                    "search",
		"/" + strings.Repeat("x", 1e3): "default",
		"/search/" + strings.Repeat("%41", 1e3) + "/x": "search",
	} {
		if got := table.Find("", nil, []byte(path), []byte("GET"), nil); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestPrefixOfAllIsMoreThanNoPath(t *testing.T) {
	table := build(t, rule("all", Match{Path: "/*"}), rule("host", Match{Host: "a.example"}), rule("both", Match{Host: "a.example", Path: "/*"}))
	for _, c := range []struct{ host, path, want string }{
		{"a.example", "/x", "both"}, {"a.example", "*", "host"}, {"b.example", "/x", "all"}, {"b.example", "/", "all"}, {"b.example", "*", "default"},
	} {
		if got := table.Find("", []byte(c.host), []byte(c.path), nil, nil); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.host, c.path, got, c.want)
		}
	}
}

func TestHost(t *testing.T) {
	table := build(t,
		rule("exact", Match{Host: "A.example.com"}),
		rule("port", Match{Host: "a.example.com:8080"}),
		rule("wild", Match{Host: "*.example.com"}),
		rule("longer", Match{Host: "*.b.example.com."}),
		rule("wildport", Match{Host: "*.example.com:99"}),
		rule("six", Match{Host: "[::1]"}),
		rule("six port", Match{Host: "[2001:DB8::1]:8080"}),
		rule("four", Match{Host: "10.0.0.1"}),
		rule("single", Match{Host: "intern"}),
	)
	for host, want := range map[string]string{
		"a.example.com":          "exact",
		"a.EXAMPLE.com.":         "exact",
		"a.example.com:80":       "exact",
		"a.example.com.:8080":    "port",
		"a.example.com:99":       "exact",
		"a.example.com:":         "exact",
		"x.example.com":          "wild",
		"x.y.example.com":        "wild",
		"x.example.com:99":       "wildport",
		"x.b.example.com:98":     "longer",
		"b.example.com":          "wild",
		"x.b.example.com:99":     "longer",
		"example.com":            "default",
		"xexample.com":           "default",
		".example.com":           "wild",
		"[::1]":                  "six",
		"[::1]:80":               "six",
		"[2001:db8::1]":          "default",
		"[2001:db8::1]:8080":     "six port",
		"10.0.0.1:1":             "four",
		"intern":                 "single",
		"x.intern":               "default",
		"":                       "default",
		":80":                    "default",
		strings.Repeat("a", 300): "default",
		strings.Repeat("a.", 120) + "example.com": "wild",
	} {
		if got := table.Find("", []byte(host), []byte("/"), []byte("GET"), nil); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

func TestLessSpecificHostServesWhatTheMoreSpecificDoesNot(t *testing.T) {
	table := build(t,
		rule("a", Match{Host: "a.example.com", Path: "/a/*"}),
		rule("wild", Match{Host: "*.example.com", Path: "/w/*"}),
		rule("any", Match{Path: "/a/b/*"}),
	)
	for _, c := range []struct{ path, want string }{{"/a/b/c", "a"}, {"/w", "wild"}, {"/x", "default"}} {
		if got := table.Find("", []byte("a.example.com"), []byte(c.path), nil, nil); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
	if got := table.Find("", []byte("other"), []byte("/a/b/c"), nil, nil); got != "any" {
		t.Errorf("other host: %s", got)
	}
}

func TestHeaderAndMethods(t *testing.T) {
	table := build(t,
		rule("plain", Match{Path: "/x/*"}),
		rule("get", Match{Path: "/x/*", Methods: []string{"GET", "HEAD"}}),
		rule("tenant", Match{Path: "/x/*", Header: "X-Tenant"}),
		rule("blue", Match{Path: "/x/*", Header: "x-tenant=blue"}),
		rule("blue post", Match{Path: "/x/*", Header: "X-Tenant=blue", Methods: []string{"POST"}}),
		rule("canary", Match{Path: "/x/*", Header: "X-Canary=1"}),
		rule("canary get", Match{Path: "/x/*", Header: "X-Canary", Methods: []string{"GET"}}),
		rule("only put", Match{Path: "/x/y", Methods: []string{"PUT"}}),
		rule("method alone", Match{Methods: []string{"PURGE"}}),
		rule("zone get", Match{Path: "/z/*", Header: "X-Zone", Methods: []string{"GET"}}),
		rule("zone 1", Match{Path: "/z/*", Header: "X-Zone=1"}),
		rule("colour", Match{Path: "/z/*", Header: "X-Colour"}),
		rule("zone", Match{Path: "/z/*", Header: "X-Zone"}),
		rule("size 1", Match{Path: "/z/*", Header: "X-Size=1"}),
		rule("equals", Match{Path: "/x/*", Header: "X-Eq=a=b"}),
	)
	for _, c := range []struct {
		method, path string
		header       headers
		want         string
	}{
		{"POST", "/x", nil, "plain"},
		{"GET", "/x", nil, "get"},
		{"HEAD", "/x/y", nil, "get"},
		{"get", "/x", nil, "plain"},
		{"PUT", "/x/y", nil, "only put"},
		{"PUT", "/x/y/z", nil, "plain"},
		{"POST", "/x", headers{"x-tenant": "red"}, "tenant"},
		{"GET", "/x", headers{"x-tenant": ""}, "tenant"},
		{"GET", "/x", headers{"x-tenant": "blue"}, "blue"},
		{"GET", "/x", headers{"x-tenant": "Blue"}, "tenant"},
		{"POST", "/x", headers{"x-tenant": "blue"}, "blue post"},
		{"POST", "/x", headers{"x-tenant": "blue", "x-canary": "1"}, "blue post"},
		{"GET", "/x", headers{"x-tenant": "blue", "x-canary": "1"}, "blue"},      // listed first
		{"GET", "/x", headers{"x-tenant": "red", "x-canary": "2"}, "canary get"}, // a method more
		{"GET", "/x", headers{"x-tenant": "red", "x-canary": "1"}, "canary"},     // a value more
		{"POST", "/x", headers{"x-tenant": "red", "x-canary": "2"}, "tenant"},
		{"POST", "/x", headers{"x-canary": "2"}, "plain"},
		{"GET", "/x", headers{"x-eq": "a=b"}, "equals"},
		{"GET", "/z", headers{"x-zone": "2", "x-size": "1"}, "size 1"},    // a value before a method
		{"POST", "/z", headers{"x-zone": "2", "x-colour": "1"}, "colour"}, // listed first
		{"POST", "/z", headers{"x-zone": "1", "x-size": "1"}, "zone 1"},   // listed first
		{"PURGE", "/x", nil, "plain"},
		{"PURGE", "/y", nil, "method alone"},
		{"PURGE", "*", nil, "method alone"},
		{"GET", "/y", nil, "default"},
	} {
		var h HeaderLookup
		if c.header != nil {
			h = c.header
		}
		if got := table.Find("", nil, []byte(c.path), []byte(c.method), h); got != c.want {
			t.Errorf("%s %s %v: %s, want %s", c.method, c.path, c.header, got, c.want)
		}
	}
}

func TestListenersAreApart(t *testing.T) {
	table := build(t,
		rule("main", Match{Path: "/a"}),
		rule("port", Match{Path: "/a", Listen: ":9001"}),
		rule("whole port", Match{Listen: ":9002"}),
	)
	for _, c := range []struct{ listen, path, want string }{
		{"", "/a", "main"}, {":9001", "/a", "port"}, {":9001", "/b", "default"}, {":9002", "/a", "whole port"}, {":9003", "/a", "default"}, {"", "/b", "default"},
	} {
		if got := table.Find(c.listen, nil, []byte(c.path), nil, nil); got != c.want {
			t.Errorf("%q %s: %s, want %s", c.listen, c.path, got, c.want)
		}
	}
}

func TestMalformedPatternsAreRefused(t *testing.T) {
	for _, m := range []Match{
		{},
		{Path: "a"}, {Path: "*"}, {Path: "/a*"}, {Path: "/a*/b"}, {Path: "/*a/b"}, {Path: "/a/**/b"}, {Path: "/*//b"}, {Path: "/*/../b"}, {Path: "/a//b"}, {Path: "//*"}, {Path: "/a//*"}, {Path: "/./a"}, {Path: "/a/.."},
		{Path: "/a;b"}, {Path: `/a\b`}, {Path: "/a%2fb"}, {Path: "/a%2E%2e/b"}, {Path: "/%2e"}, {Path: "/a%5C"}, {Path: "/a%3b"}, {Path: "/a%25"}, {Path: "/a%zz"}, {Path: "/a%2"},
		{Path: "/a%c0%af"}, {Path: "/a b"}, {Path: "/a?b"}, {Path: "/a#b"}, {Path: "/a\x00"}, {Path: "/" + strings.Repeat("a", 257)},
		{Host: "*"}, {Host: "*.*.a"}, {Host: "a.*.b"}, {Host: "*a.b"}, {Host: "a..b"}, {Host: "a b"}, {Host: "a:0"}, {Host: "a:65536"}, {Host: "a:x"}, {Host: "a:080"}, {Host: "a:"}, {Host: "*."},
		{Host: "."}, {Host: "http://a"}, {Host: "[::1"}, {Host: "[1.2.3.4]"}, {Host: "*.[::1]"}, {Host: "::1"}, {Host: strings.Repeat("a", 64)}, {Host: strings.Repeat("a.", 140)},
		{Header: "="}, {Header: "=a"}, {Header: "A b"}, {Header: "A="}, {Header: "A= b"}, {Header: "A=b\n"}, {Header: "A:b"},
		{Methods: []string{""}}, {Methods: []string{"get"}}, {Methods: []string{"A B"}}, {Methods: []string{"GET", "GET"}},
	} {
		if _, err := New([]Rule[int]{{Match: m, Name: "bad"}}, 0); err == nil {
			t.Errorf("%+v passes", m)
		} else if !strings.HasPrefix(err.Error(), "route bad: ") {
			t.Errorf("%+v: %v does not name the route", m, err)
		}
	}
}

func TestAllMistakesAreNamedAtOnce(t *testing.T) {
	_, err := New([]Rule[int]{
		{Name: "one", Match: Match{Path: "/a/*"}},
		{Name: "two", Match: Match{Path: "x", Host: "a b", Methods: []string{"get", "", "PUT", "PUT"}}},
		{Name: "three", Match: Match{Path: "/a/*"}},
		{Name: "four", Match: Match{Path: "/%61/*", Host: ""}},
	}, 0)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"x"`, `"a b"`, "write GET", `method ""`, `"PUT": named twice`, "route three: matches the same requests as route one", "route four: matches the same requests as route one"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

func TestAmbiguousRulesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b Match
		bad  bool
	}{
		{"same path", Match{Path: "/a"}, Match{Path: "/a"}, true},
		{"exact and prefix", Match{Path: "/a"}, Match{Path: "/a/*"}, false},
		{"slash at the end", Match{Path: "/a"}, Match{Path: "/a/"}, false},
		{"same host, other case", Match{Host: "a.b"}, Match{Host: "A.B."}, true},
		{"port", Match{Host: "a.b"}, Match{Host: "a.b:80"}, false},
		{"wildcard", Match{Host: "*.a.b"}, Match{Host: "a.b"}, false},
		{"methods overlap", Match{Path: "/a", Methods: []string{"GET", "PUT"}}, Match{Path: "/a", Methods: []string{"PUT", "POST"}}, true},
		{"methods apart", Match{Path: "/a", Methods: []string{"GET"}}, Match{Path: "/a", Methods: []string{"POST"}}, false},
		{"methods and none", Match{Path: "/a", Methods: []string{"GET"}}, Match{Path: "/a"}, false},
		{"header names", Match{Path: "/a", Header: "A"}, Match{Path: "/a", Header: "B"}, false},
		{"header, other case", Match{Path: "/a", Header: "A=x"}, Match{Path: "/a", Header: "a=x"}, true},
		{"header values", Match{Path: "/a", Header: "A=x"}, Match{Path: "/a", Header: "A=y"}, false},
		{"header value and presence", Match{Path: "/a", Header: "A=x"}, Match{Path: "/a", Header: "A"}, false},
		{"listener", Match{Path: "/a"}, Match{Path: "/a", Listen: ":1"}, false},
		{"same listener", Match{Listen: ":1"}, Match{Listen: ":1"}, true},
	} {
		for _, pair := range [][2]Match{{c.a, c.b}, {c.b, c.a}} {
			_, err := New([]Rule[int]{{Match: pair[0], Name: "first"}, {Match: pair[1], Name: "second"}}, 0)
			if (err != nil) != c.bad {
				t.Errorf("%s: %v", c.name, err)
			}
			if err != nil && (!strings.Contains(err.Error(), "first") || !strings.Contains(err.Error(), "second")) {
				t.Errorf("%s: %v does not name both routes", c.name, err)
			}
		}
	}
}

// A rule may name several hosts and paths, and matches any host with any path of them.
func TestSeveralHostsAndPaths(t *testing.T) {
	table := build(t,
		rule("both", Match{Host: "a.test, *.b.test", Path: "/x/*,/y%2Cz"}),
		rule("paths", Match{Path: "/x/1,/x/2"}),
		rule("header", Match{Path: "/h,/i", Header: "X-Beta"}),
	)
	for request, want := range map[string]string{
		"a.test /x/1": "both", "c.b.test /x": "both", "a.test /y,z": "both", "c.b.test /y%2cz": "both",
		"a.test /y": "default", "b.test /x": "default", "b.test /x/1": "paths", "a.test /x/2": "both",
		"c.test /x/2": "paths", "c.test /h": "header", "c.test /i": "header", "c.test /x/3": "default",
	} {
		host, path, _ := strings.Cut(request, " ")
		if got := table.Find("", []byte(host), []byte(path), []byte("GET"), headers{"x-beta": "1"}); got != want {
			t.Errorf("%s: %s, want %s", request, got, want)
		}
	}
}

// Each of several is checked like one, and none may be another's.
func TestSeveralHostsAndPathsAreChecked(t *testing.T) {
	for name, tc := range map[string]struct {
		rules []Rule[string]
		want  []string
	}{
		"every error is told":   {[]Rule[string]{rule("a", Match{Host: "a b,-?", Path: "x,/y,/z/"})}, []string{`host "a b"`, `host "-?"`, `path "x"`}},
		"one is empty":          {[]Rule[string]{rule("a", Match{Path: "/x,"}), rule("b", Match{Host: ",b"})}, []string{`route a: "/x," has an empty entry`, `route b: ",b" has an empty entry`}},
		"one is another rule's": {[]Rule[string]{rule("a", Match{Path: "/x,/y"}), rule("b", Match{Path: "/y"})}, []string{"route b: matches the same requests as route a"}},
		"one is there twice":    {[]Rule[string]{rule("a", Match{Path: "/x,/x"})}, []string{"route a: matches the same requests as route a"}},
	} {
		_, err := New(tc.rules, "default")
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

func TestARuleThatNeverMatches(t *testing.T) {
	table, err := New([]Rule[string]{{Match: Match{Never: true}, Value: "never", Name: "a"}, {Match: Match{Path: "/b", Never: true}, Value: "never", Name: "b"}}, "default")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/b"} {
		if got := table.Find("", []byte("h"), []byte(path), []byte("GET"), nil); got != "default" {
			t.Errorf("%s: %s", path, got)
		}
	}
	if table.HasPaths() {
		t.Error("has paths")
	}
}
