package route

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

// apiTable has routes that odd paths could be meant for.
func apiTable(t testing.TB) *Table[string] {
	return build(t,
		rule("api", Match{Path: "/api/*"}),
		rule("admin", Match{Path: "/api/admin/*"}),
		rule("exact", Match{Path: "/api/exact"}),
		rule("files", Match{Path: "/files/*"}),
		rule("host", Match{Host: "other.example", Path: "/x/*"}),
		rule("port", Match{Listen: ":1"}),
	)
}

func TestAmbiguous(t *testing.T) {
	table := apiTable(t)
	for _, c := range []struct {
		path, strip string
		want        bool
	}{
		// Nothing to look into.
		{"/", "", false},
		{"/api/x.y/..z/...", "", false},
		{"/caf%C3%A9/%20/%E0%B8%81", "", false},
		{"/%61pi/x", "", false}, // every reading, Find's included, is /api/x
		{"*", "/api", false},
		// Oddities that no reading turns into another route.
		{"/caf\xc3\xa9/x", "/caf\xc3\xa9", false},
		{"/caf\xc3\xa9/x", "/caf%c3%a9", true}, // below the prefix for an upstream that decodes it, and not cut by us
		{"/files//a", "", false},
		{"/files/a/../b", "", false},
		{"/files/a%2Fb%5cc;d=1/%2e", "", false},
		{"/api/x;v=1", "", false},
		{"/none/a/../b", "", false},
		{"/files/https%3A%2F%2Fexample.com%2Fa%2Fb", "", false},
		{"/files/100%25/x", "", false},
		{"/files/;/..;x", "", true}, // cut after the first ";" leaves /files/, without parameters /files//.. is / or /files/
		// Dots.
		{"/api/admin/../x", "", true},
		{"/api/x/../admin", "", true},
		{"/files/../api/x", "", true},
		{"/files/..", "", true},
		{"/files/%2e%2e/", "", true},
		{"/files/.%2E/", "", true},
		{"/./files/x", "", true},
		{"/api/./exact", "", true},
		{"/../../files/x", "", true},
		{"/files/a/../../api", "", true},
		// Slashes.
		{"//api/x", "", true},
		{"/api//exact", "", true},
		{"/api//admin", "", true},
		{"/api%2Fexact", "", true},
		{"/api/admin%2fx", "", true},
		{"/api%2fx", "", true},
		{`/api\x`, "", true},
		{`/files/..\api`, "", true},
		{"/files%5cx", "", true},
		{"/files/%5C..%5C../api", "", true},
		// Parameters.
		{"/api;v=1/x", "", true},
		{"/api/exact;v=1", "", true},
		{"/api/exact%3Bv=1", "", true},
		{"/api/x/..;/admin", "", true},
		{"/api/x/..;a=b/..;c/files", "", true},
		{"/none;x/y", "", false},
		{"/api/exact;v=1/y", "", true}, // all after the ";" cut
		// Twice encoded, overlong, in steps.
		{"/files/%252e%252e/api", "", true},
		{"/files/%25252e./api", "", true},
		{"/api%252fexact", "", true},
		{"/files/%c0%ae%c0%ae/api", "", true},
		{"/files/..%c0%afapi", "", true},
		{"/files/..%e0%80%afapi", "", true},
		{"/files/..%f0%80%80%afapi", "", true},
		{"/files/..%c1%9capi", "", true},
		{"/files/..%c0%2fapi", "", false}, // a stray lead byte stays in the name
		{"/none/%c3%af%e0%b8%81%f0%9f%98%80", "", false},
		{"/files/%%32e%%32e/api", "", true},
		{"/files/x/%2e%2e/../..", "", true},
		// In a reading that only one order of steps gives: dots resolved before
		// the encoded ones are, so that these stay as a name.
		{"/q/../files/%2e%2e/b", "", true},
		// Encoded dots decoded, encoded slashes not.
		{"/q%2fr/%2e%2e/files/b", "", true},
		{"/q%2fr/%c0%ae%C0%AE/files/b", "", true},
		{"/q%2fr/%C0%ae./files/b", "", true},
		{"/q%2fr/%c0%ae./files/b", "", true},
		{"/files/..\xc0\xafapi", "", true},
		{"/files/..\xc1\x9capi", "", true},
		{"/files/..\xe0\x80\xafapi", "", true},
		{"/files/..\xf0\x80\x80\xafapi", "", true},
		{"/q%2fr/%e0%80%ae./files/b", "", true},
		{"/q%2fr/.%E0%80%ae/files/b", "", true},
		{"/q%2fr/.%f0%80%80%ae/files/b", "", true},
		{"/q%2fr/.%F0%80%80%ae/files/b", "", true},
		// Stripped prefix.
		{"/files/x", "/files", false},
		{"/files", "/files", false},
		{"/files/a//b;c/./%2e", "/files", false},
		{"/files/a/../b", "/files/", false},
		{"/none//x", "/files", false},
		{"/none/../x", "/files", false},
		{"/none/%61", "/none", false},
		{"/%6eone/x", "/none", true},
		{"/none/../none/x", "/none", true},
		{"/none/x/../../none/y", "/none", true},
		{"/none/..;/none/", "/none", true},
		{"//none/x", "/none", true},
		{"/none%2fx", "/none", true},
		{"/none;a/x", "/none", true},
		{"/none;a", "/none", true},
		{"/none/../x", "/none", true},
		{"/none/../x", "/none//", true},
		{"/none//x", "/none/", false},
		{"/none/%252e%252e/none/x", "/none", true},
		{"/caf%c3%a9/x", "/caf%C3%A9", true}, // not a byte of it would be stripped
		{"/caf%C3%A9/x", "/caf%C3%A9", false},
	} {
		got := table.Ambiguous("", []byte("a.example"), []byte(c.path), []byte("GET"), nil, c.strip)
		if got != c.want {
			t.Errorf("%s (strip %q): %v, want %v", c.path, c.strip, got, c.want)
		}
	}
}

func TestPathsMatterOnlyWhereRulesHaveThem(t *testing.T) {
	table := apiTable(t)
	path := []byte("/x/../../%2e%2e//y")
	for _, c := range []struct {
		listen, host, strip string
		want                bool
	}{
		{":1", "a", "", false},
		{":2", "a", "", false},
		{":1", "a", "/x", true},
		{"", "other.example", "", true},
		{"", "a.example", "", false},
	} {
		if got := table.Ambiguous(c.listen, []byte(c.host), path, nil, nil, c.strip); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
	if build(t, rule("host", Match{Host: "a"})).Ambiguous("", []byte("a"), path, nil, nil, "") {
		t.Error("a table without paths minds the path")
	}
}

func TestHopelesslyOddPathsAreAmbiguous(t *testing.T) {
	table := apiTable(t)
	long := []byte("/files/" + strings.Repeat("a//b;c/%2e/%255c", 4000))
	if !table.Ambiguous("", nil, long, nil, nil, "") {
		t.Error("a path beyond the bounds passes")
	}
	if table.Ambiguous("", nil, []byte("/files/"+strings.Repeat("https%3A%2F%2Fa", 600)), nil, nil, "") {
		t.Error("a long nested address is refused")
	}
	if table.Ambiguous(":1", nil, long, nil, nil, "") {
		t.Error("and where no rule has a path")
	}
	var x ambiguityChecker
	x.start(&table.index, "", "", &query{path: []byte("/files/;" + strings.Repeat(`a//b;c\..\%252e%2e%2f%c0%ae/./`, 5))})
	x.ambiguous()
	if len(x.interpretations) > maxInterpretations || x.work > maxInterpretationBytes+8<<10 {
		t.Errorf("%d readings, %d bytes", len(x.interpretations), x.work)
	}
}

func TestNormalizers(t *testing.T) {
	for _, c := range []struct {
		name     string
		step     func(dst, path []byte) []byte
		in, want string
	}{
		{"unreserved", decodeUnreserved, "/%61%2e%2F%7e%25%zz%4", "/a.%2F~%25%zz%4"},
		{"all", decodeAll, "/%61%2e%2F%7e%252f%zz%4", "/a./~%2f%zz%4"},
		{"overlong", replaceOverlong, "/\xc0\xaf%c1%81%e0%80%ae%F0%80%81%81%c0%c0%e0%a0%80%f0%90%80%80\xc0", "//A.A%c0%c0%e0%a0%80%f0%90%80%80\xc0"},
		{"backslash", replaceBackslashes, `/a\b\\c`, "/a/b//c"},
		{"params", cutParams, "/a;b;c/d/;e/f;", "/a/d//f"},
		{"after param", cutAfterParam, "/a;b/c", "/a"},
		{"merge", mergeSlashes, "//a///b//", "/a/b/"},
		{"dots", removeDots, "/a/b/../c/./d", "/a/c/d"},
		{"dots at the end", removeDots, "/a/b/..", "/a/"},
		{"dot at the end", removeDots, "/a/.", "/a/"},
		{"dots beyond the root", removeDots, "/../..", "/"},
		{"dots over an empty segment", removeDots, "/a//../b", "/a/b"},
		{"no dots", removeDots, "/.../..a/.b/a.", "/.../..a/.b/a."},
		{"RFC 3986 section 5.2.4", removeDots, "/a/b/c/./../../g", "/a/g"},
	} {
		if got := string(c.step([]byte("x"), []byte(c.in))); got != "x"+c.want {
			t.Errorf("%s: %q, want %q", c.name, got[1:], c.want)
		}
	}
}

// FuzzInterpretations holds the promise of Ambiguous: where it says no, any number of
// steps in any order leads to the same route and to the same remainder below
// the stripped prefix; and that Plain paths are never ambiguous to the full search.
func FuzzInterpretations(f *testing.F) {
	for _, s := range []string{"/files/a/../b", "/api%2f..%5cexact", "/files/%25252e%2e//;x/.", "/none/x;y/%c0%af/%e0%80%ae", "/api/%%32e/..", "/caf%c3%a9/admin"} {
		f.Add(s, uint64(1))
	}
	tables := []*Table[string]{apiTable(f), build(f, rule("a", Match{Path: "/none"}), rule("b", Match{Path: "/files/a/b/"}), rule("café", Match{Path: "/café/*"}))}
	f.Fuzz(func(t *testing.T, path string, seed uint64) {
		if len(path) == 0 || path[0] != '/' || len(path) > 200 {
			return
		}
		table, rnd := tables[seed%2], rand.New(rand.NewPCG(seed, 0))
		strip := []string{"", "/files", "/none/x", "/api/"}[seed/2%4]
		original := []byte(path)
		ambiguous := table.Ambiguous("", nil, original, nil, nil, strip)
		if string(original) != path {
			t.Fatal("the path was written to")
		}
		if IsPlain(original) && strip == "" {
			var x ambiguityChecker
			x.start(&table.index, "", "", &query{path: original})
			if x.ambiguous() {
				t.Fatalf("%q is plain and ambiguous", path)
			}
		}
		if ambiguous {
			return
		}
		for range 8 {
			checkWalk(t, table, original, strip, rnd)
		}
	})
}

// checkWalk takes random steps and compares each reading with the path.
func checkWalk(t *testing.T, table *Table[string], path []byte, strip string, rnd *rand.Rand) {
	strip = strings.TrimRight(strip, "/")
	find := func(p []byte) string { return table.Find("", nil, p, nil, nil) }
	rest, below := cutRaw(path, strip)
	p := path
	var taken []int
	for range 6 {
		i := rnd.IntN(len(normalizers))
		taken = append(taken, i)
		p = normalizers[i].apply(nil, p)
		if rest != nil {
			rest = normalizers[i].apply(nil, rest)
		}
		if find(p) != find(path) {
			t.Fatalf("steps %v make %q of %q: %s, not %s", taken, p, path, find(p), find(path))
		}
		got, isBelow := cutDecoded(p, strip)
		if isBelow != below || below && !bytes.Equal(got, rest) {
			t.Fatalf("steps %v make %q of %q: below %q: %v %q, want %v %q", taken, p, path, strip, isBelow, got, below, rest)
		}
	}
}

func TestPlainPathsAreNeverAmbiguous(t *testing.T) {
	plain := []string{"/", "/a", "/a/", "/a.b/..c/...", "/a%20b", "/%41", "/%e0%b8%81", "/%f0%9f%98%80", "/a:b@c,d=e!f$g'h(i)*+~_-"}
	odd := []string{"//", "/a//", "/.", "/..", "/./a", "/a/../b", "/%2e", "/a%2Eb", "/%2f", "/%5c", `/\`, "/;", "/%3b", "/%25", "/%", "/%4", "/%zz", "/%c0%ae", "/\xc0\xae", "/%e0%80%ae", "/%f0%80%80%ae", "/a%3Fb", "/a%23b", "/a%00b"}
	for _, p := range plain {
		if !IsPlain([]byte(p)) {
			t.Errorf("%s is not plain", p)
		}
	}
	for _, p := range odd {
		if IsPlain([]byte(p)) {
			t.Errorf("%s is plain", p)
		}
	}
}
