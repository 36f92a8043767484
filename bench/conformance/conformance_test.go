package conformance

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "write testdata anew")
	peers  = flag.Bool("peers", false, "show the cases to HAProxy and nginx too, and write docs/explanation/conformance.md")
)

// program is the real binary; the tests that need it are skipped without one.
func program(t *testing.T) string {
	t.Helper()
	path := os.Getenv("RETRYPROXY")
	if path == "" {
		t.Skip("RETRYPROXY names no binary; make conformance does")
	}
	return path
}

// The cases are as many as were promised, and no two are the same.
func TestTablesAreLargeEnough(t *testing.T) {
	for name, table := range map[string]struct {
		families []family
		least    int
	}{"requests": {requestFamilies, 400}, "responses": {responseFamilies, 150}} {
		raw := map[string]string{}
		for _, c := range cases(table.families) {
			if other, twice := raw[c.raw]; twice {
				t.Errorf("%s: %s is %s again", name, c.id, other)
			}
			raw[c.raw] = c.id
		}
		if len(raw) < table.least {
			t.Errorf("%d %s, want %d", len(raw), name, table.least)
		}
	}
}

func TestCheckFindsSecondReadings(t *testing.T) {
	const host = "POST / HTTP/1.1\r\nHost: a\r\n"
	for raw, ambiguous := range map[string]bool{
		host + "\r\n":                                                                false,
		host + "Content-Length: 5\r\n\r\nhello":                                      false,
		host + "Transfer-Encoding: chunked\r\n\r\n" + hello:                          false,
		"POST  / HTTP/1.1\r\nHost: a\r\n\r\n":                                        true,
		"POST / HTTP/1.1\r\n\r\n":                                                    true,
		host + "Host: a\r\n\r\n":                                                     true,
		host + "X: a\rb\r\n\r\n":                                                     true,
		host + "X: a\nb: c\r\n\r\n":                                                  true,
		host + "X : a\r\n\r\n":                                                       true,
		host + "X: a\r\n b\r\n\r\n":                                                  true,
		host + "Content-Length: +5\r\n\r\nhello":                                     true,
		host + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello":                 true,
		host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + hello:     true,
		host + "Content_Length: 5\r\n\r\n":                                           true,
		host + "Transfer-Encoding: x\r\n\r\n":                                        true,
		host + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n":       true,
		host + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n":             true,
		host + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX T: 1\r\n\r\n": true,
	} {
		if got := CheckRequest([]byte(raw)); (got != "") != ambiguous {
			t.Errorf("%q: %q", raw, got)
		}
	}
}

func TestRequests(t *testing.T) {
	p := start(t, program(t))
	record(t, "requests.txt", requestFamilies, func(c *testCase) verdict { return request(p.addr, p.origin, c) })
}

func TestResponses(t *testing.T) {
	p := start(t, program(t))
	record(t, "responses.txt", responseFamilies, func(c *testCase) verdict { return response(p.addr, p.origin, c) })
}

// record judges every case and compares what became of it with testdata.
func record(t *testing.T, name string, table []family, show func(c *testCase) verdict) {
	t.Helper()
	var b strings.Builder
	for _, c := range cases(table) {
		v := show(&c)
		if fault := judge(&c, &v); fault != "" {
			t.Errorf("%s: %s\n  %.300q\n  statuses %v, reached the other side: %.300q", c.id, fault, c.raw, v.statuses, v.got)
		}
		fmt.Fprintf(&b, "%s\n  must be: %s\n  case:    %s\n  verdict: %s %v\n", c.id, c.must, short(c.raw), v.text, v.statuses)
		for _, g := range v.got {
			fmt.Fprintf(&b, "  arrived: %s\n", short(g))
		}
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(b.String(), "\n") {
		if old := strings.Split(string(want), "\n"); i >= len(old) || old[i] != line {
			t.Fatalf("%s line %d differs; if it is meant so, run with -update:\n%s", path, i+1, line)
		}
	}
}

// judge says what is wrong with a verdict; "" for nothing.
func judge(c *testCase, v *verdict) string {
	switch {
	case v.problem != "":
		return "what reached the other side can be read in two ways: " + v.problem
	case c.must == mustForward && v.forwards == 0:
		return "was not forwarded: " + v.text
	case c.must == mustRefuse && v.forwards > 0:
		return "was forwarded"
	case c.must == mustCut && v.forwards > 0:
		return "a broken body looks whole"
	}
	return ""
}

// short is a text on one line, its middle left out when it is long.
func short(s string) string {
	const most = 300
	if len(s) > most {
		return fmt.Sprintf("%q ... %q (%d bytes)", s[:most/2], s[len(s)-most/2:], len(s))
	}
	return fmt.Sprintf("%q", s)
}
