package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestRetryable(t *testing.T) {
	methods := func(s string) MethodSet {
		m, err := ParseMethods(s)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, tc := range []struct {
		name   string
		policy Policy
		method string
		key    bool
		want   bool
	}{
		{name: "GET", method: "GET", want: true},
		{name: "HEAD", method: "HEAD", want: true},
		{name: "OPTIONS", method: "OPTIONS", want: true},
		{name: "TRACE", method: "TRACE", want: true},
		{name: "PUT", method: "PUT", want: true},
		{name: "DELETE", method: "DELETE", want: true},
		{name: "POST", method: "POST"},
		{name: "PATCH", method: "PATCH"},
		{name: "unknown method", method: "PURGE"},
		{name: "no method", method: ""},
		{name: "methods are case-sensitive", method: "get"},
		{name: "a longer name is another method", method: "GETX"},
		{name: "POST with a key", method: "POST", key: true, want: true},
		{name: "POST on a route that opted in", method: "POST", policy: Policy{Unsafe: true}, want: true},
		{name: "POST listed", method: "POST", policy: Policy{Methods: methods("GET, POST")}, want: true},
		{name: "a list takes the place of the default", method: "PUT", policy: Policy{Methods: methods("GET,POST")}},
		{name: "none", method: "GET", policy: Policy{Methods: methods("none")}},
		{name: "none but a key", method: "GET", key: true, policy: Policy{Methods: methods("none")}, want: true},
	} {
		if got := tc.policy.Retryable([]byte(tc.method), tc.key); got != tc.want {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestParseMethods(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"GET", "GET"},
		{" GET , PURGE,GET", "GET,PURGE"},
		{"none", "none"},
		{"m-search", "m-search"},
	} {
		m, err := ParseMethods(tc.in)
		if err != nil || m.String() != tc.want {
			t.Errorf("%q: %q, %v; want %q", tc.in, m, err, tc.want)
		}
	}
	if got := (MethodSet{}).String(); got != "GET,HEAD,OPTIONS,TRACE,PUT,DELETE" {
		t.Errorf("the zero value is %s", got)
	}
}

func TestParseMethodsNamesEveryError(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []string
	}{
		{"", []string{"none"}},
		{"GET,", []string{"empty"}},
		{"get,Put,P(T", []string{"did you mean GET", "did you mean PUT", `"P(T"`}},
		{"GET,none,G T", []string{`"G T"`}},
		{"patch", []string{"did you mean PATCH"}},
		{"G\xc3\x89T", []string{"not a method name"}},
		{"[GET]", []string{"not a method name"}},
	} {
		_, err := ParseMethods(tc.in)
		for _, want := range tc.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: error %v does not say %q", tc.in, err, want)
			}
		}
	}
	var many []string
	for i := range maxMethods + 1 {
		many = append(many, fmt.Sprintf("M%d", i))
	}
	if _, err := ParseMethods(strings.Join(many, ",")); err == nil {
		t.Error("a list without end was taken")
	}
	if _, err := ParseMethods(strings.Join(many[1:], ",")); err != nil {
		t.Errorf("a list of %d: %v", maxMethods, err)
	}
}

func TestRetryableDoesNotAllocate(t *testing.T) {
	p, method := Policy{}, []byte("PATCH")
	if n := testing.AllocsPerRun(100, func() { p.Retryable(method, false) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
