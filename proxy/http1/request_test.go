package http1

import (
	"errors"
	"strings"
	"testing"
)

// wantRefusal checks that a header section was refused for the right reason with the right status.
func wantRefusal(t *testing.T, n int, err error, why Refusal, status int) {
	t.Helper()
	var e *Error
	if n != 0 || !errors.As(err, &e) {
		t.Fatalf("n=%d err=%v, want refusal %v", n, err, why)
	}
	if e.Reason != why || e.Status != status {
		t.Fatalf("refused as %v with %d, want %v with %d", e.Reason, e.Status, why, status)
	}
}

// wantTrickle checks that bytes coming one at a time end as they do at once.
func wantTrickle(t *testing.T, head string, n int, err error, parse func([]byte) (int, error)) {
	t.Helper()
	for k := 1; k <= len(head); k++ {
		gotN, gotErr := parse([]byte(head[:k]))
		if gotN == 0 && gotErr == nil {
			continue
		}
		if gotN != n || gotErr != err {
			t.Fatalf("after %d bytes: n=%d err=%v, at once: n=%d err=%v", k, gotN, gotErr, n, err)
		}
		return
	}
	// A refusal may wait for as many bytes again; then only the next reading finds it.
	if err == nil && n != 0 {
		t.Fatalf("byte by byte the head never ended")
	}
}

// requestSummary is the meaning of an accepted request header section. Empty Authority means nil.
type requestSummary struct {
	form                           Form
	scheme, authority, path, query string
	hasQuery                       bool
	http10                         bool
	body                           Framing
	closes, expects, trailers, hop bool
	upgrade                        string
}

var acceptedRequests = []struct {
	name string
	head string
	want requestSummary
}{
	{"origin form", "GET /a/b HTTP/1.1\r\nHost: a.example:8080\r\n\r\n", requestSummary{authority: "a.example:8080", path: "/a/b"}},
	{"query", "GET /a?b=c?d HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/a", query: "b=c?d", hasQuery: true}},
	{"empty query", "GET /a? HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/a", hasQuery: true}},
	{"double slash is a path", "GET //b/c HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "//b/c"}},
	{"bytes clients leave raw", "GET /\"<a>?{\"b\":[1|2^3]} HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/\"<a>", query: "{\"b\":[1|2^3]}", hasQuery: true}},
	{"raw UTF-8", "GET /caf\xc3\xa9?q=\xf0\x9f\x98\x80 HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/caf\xc3\xa9", query: "q=\xf0\x9f\x98\x80", hasQuery: true}},
	{"equal CLs", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", requestSummary{authority: "a", path: "/", body: Framing{BodyLength, 5}}},
	{"bytes browsers leave raw", "GET /[a]|b?{c}^`\\'% HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/[a]|b", query: "{c}^`\\'%", hasQuery: true}},
	{"escapes stay", "GET /%2e%2E/%00 HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/%2e%2E/%00"}},
	{"unknown method, case kept", "m-SEARCH / HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/"}},
	{"method of 32 letters", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA / HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/"}},
	{"higher minor reads as 1.1 (RFC 9110 2.5)", "GET / HTTP/1.9\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/"}},
	{"several empty lines first (RFC 9112 2.2)", "\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/"}},
	{"empty Host (RFC 9112 3.2)", "GET / HTTP/1.1\r\nHost:\r\n\r\n", requestSummary{path: "/"}},
	{"empty Host in HTTP/1.0", "GET / HTTP/1.0\r\nHost:\r\n\r\n", requestSummary{path: "/", http10: true, closes: true}},
	{"one empty line first (RFC 9112 2.2)", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/"}},

	{"asterisk form (RFC 9112 3.2.4)", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{form: Asterisk, authority: "a", path: "*"}},
	{"absolute form beats Host (3.2.2)", "GET http://b:81/x?y HTTP/1.1\r\nHost: a\r\n\r\n",
		requestSummary{form: Absolute, scheme: "http", authority: "b:81", path: "/x", query: "y", hasQuery: true}},
	{"absolute form, upper case https", "GET HTTPS://B HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{form: Absolute, scheme: "HTTPS", authority: "B", path: "/"}},
	{"absolute form, query without path", "GET http://b?y/z HTTP/1.1\r\nHost: b\r\n\r\n",
		requestSummary{form: Absolute, scheme: "http", authority: "b", path: "/", query: "y/z", hasQuery: true}},
	{"absolute OPTIONS without path (3.2.4)", "OPTIONS http://b HTTP/1.1\r\nHost: b\r\n\r\n", requestSummary{form: Absolute, scheme: "http", authority: "b", path: "*"}},
	{"absolute OPTIONS with query", "OPTIONS http://b? HTTP/1.1\r\nHost: b\r\n\r\n", requestSummary{form: Absolute, scheme: "http", authority: "b", path: "/", hasQuery: true}},
	{"absolute OPTIONS with path", "OPTIONS http://b/ HTTP/1.1\r\nHost: b\r\n\r\n", requestSummary{form: Absolute, scheme: "http", authority: "b", path: "/"}},

	{"IPv6 host", "GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", requestSummary{authority: "[2001:db8::1]:80", path: "/"}},
	{"underscore host", "GET / HTTP/1.1\r\nHost: my_app.\r\n\r\n", requestSummary{authority: "my_app.", path: "/"}},
	{"empty port (RFC 3986 3.2.3)", "GET / HTTP/1.1\r\nHost: a:\r\n\r\n", requestSummary{authority: "a:", path: "/"}},
	{"white space around Host", "GET / HTTP/1.1\r\nHost:\t a \t\r\n\r\n", requestSummary{authority: "a", path: "/"}},

	{"HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", requestSummary{path: "/", http10: true, closes: true}},
	{"HTTP/1.0 keep-alive", "GET / HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n", requestSummary{authority: "a", path: "/", http10: true}},
	{"HTTP/1.0 keep-alive and close", "GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", requestSummary{path: "/", http10: true, closes: true}},
	{"HTTP/1.0 with absolute form", "GET http://b/ HTTP/1.0\r\n\r\n", requestSummary{form: Absolute, scheme: "http", authority: "b", path: "/", http10: true, closes: true}},
	{"HTTP/1.0 expectation is ignored (RFC 9110 10.1.1)", "POST / HTTP/1.0\r\nExpect: x\r\nContent-Length: 1\r\n\r\n",
		requestSummary{path: "/", http10: true, closes: true, body: Framing{BodyLength, 1}}},
	{"HTTP/1.0 upgrade is ignored (RFC 9110 7.8)", "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", requestSummary{path: "/", http10: true, closes: true}},
	{"Connection: close", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", requestSummary{authority: "a", path: "/", closes: true}},
	{"close among names in two lines", "GET / HTTP/1.1\r\nHost: a\r\nConnection: x,,\r\nConnection: \t,close\r\n\r\n", requestSummary{authority: "a", path: "/", closes: true, hop: true}},

	{"content length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 12 \r\n\r\n", requestSummary{authority: "a", path: "/", body: Framing{BodyLength, 12}}},
	{"content length zero stays announced", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", requestSummary{authority: "a", path: "/", body: Framing{BodyLength, 0}}},
	{"largest content length", "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n",
		requestSummary{authority: "a", path: "/", body: Framing{BodyLength, 1<<63 - 1}}},
	{"chunked, any case", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: ChunKed\r\n\r\n", requestSummary{authority: "a", path: "/", body: Framing{Kind: BodyChunked}}},
	{"chunked GET", "GET / HTTP/1.1\r\nHost: a\r\ntransfer-encoding:chunked\r\n\r\n", requestSummary{authority: "a", path: "/", body: Framing{Kind: BodyChunked}}},
	{"no framing is no body (RFC 9112 6.3 rule 7)", "POST / HTTP/1.1\r\nHost: a\r\n\r\n", requestSummary{authority: "a", path: "/"}},

	{"expectation", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n",
		requestSummary{authority: "a", path: "/", expects: true, body: Framing{BodyLength, 3}}},
	{"expectation without body is dropped", "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
		requestSummary{authority: "a", path: "/", body: Framing{BodyLength, 0}}},
	{"upgrade", "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n", requestSummary{authority: "a", path: "/", upgrade: "websocket"}},
	{"upgrade not in Connection", "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", requestSummary{authority: "a", path: "/"}},
	{"upgrade to h2c is not offered (RFC 9113 3.1)", "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: x, H2C\r\nHTTP2-Settings: AA\r\n\r\n",
		requestSummary{authority: "a", path: "/", hop: true}},
	{"TE: trailers", "GET / HTTP/1.1\r\nHost: a\r\nTE: deflate;q=0.5, trailers\r\nConnection: TE\r\n\r\n", requestSummary{authority: "a", path: "/", trailers: true, hop: true}},
	{"obs-text, tabs and empty values", "GET / HTTP/1.1\r\nHost: a\r\nX: \xe9\t b\r\nY:\r\n\r\n", requestSummary{authority: "a", path: "/"}},
}

func TestRequestAccepted(t *testing.T) {
	for _, c := range acceptedRequests {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			const next = "GET /next HTTP/1.1\r\n"
			n, err := r.Parse([]byte(c.head+next), Limits{})
			if err != nil || n != len(c.head) {
				t.Fatalf("n=%d err=%v, want n=%d", n, err, len(c.head))
			}
			if got := summary(&r); got != c.want {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			var trickled Request
			wantTrickle(t, c.head, n, err, func(b []byte) (int, error) { return trickled.Parse(b, Limits{}) })
			if got := summary(&trickled); got != c.want {
				t.Errorf("byte by byte: got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func summary(r *Request) requestSummary {
	return requestSummary{
		form: r.Form, scheme: string(r.Scheme), authority: string(r.Authority), path: string(r.Path), query: string(r.Query),
		hasQuery: r.HasQuery, http10: r.Minor == 0, body: r.Body, closes: r.Close, expects: r.ExpectContinue,
		trailers: r.AcceptsTrailers, hop: r.HasHopByHopNames, upgrade: string(r.Upgrade),
	}
}

func TestRequestKeepsHeadersAsTheyCame(t *testing.T) {
	head := "GET / HTTP/1.1\r\nhOsT: a\r\nX-B:  2  \r\nx-a: 1\r\nX-B:\r\nX-b: \t3,\t4\t\r\n\r\n"
	var r Request
	if n, err := r.Parse([]byte(head), Limits{}); n != len(head) || err != nil {
		t.Fatal(n, err)
	}
	var got strings.Builder
	for _, f := range r.Headers {
		got.WriteString(string(f.Name) + "=" + string(f.Value) + ";")
	}
	if want := "hOsT=a;X-B=2;x-a=1;X-B=;X-b=3,\t4;"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
	if v := r.Get(Host); string(v) != "a" {
		t.Errorf("Get(Host) = %q", v)
	}
	if v := r.Get(Via); v != nil {
		t.Errorf("Get(Via) = %q, want nil", v)
	}
	if v, ok := r.Lookup("x-B"); string(v) != "2" || !ok {
		t.Errorf("Lookup(x-B) = %q, %v", v, ok)
	}
	if _, ok := r.Lookup("x-c"); ok {
		t.Error("Lookup(x-c) found something")
	}
}

func TestRequestLimits(t *testing.T) {
	const line, host, end = "GET / HTTP/1.1\r\n", "Host: a\r\n", "\r\n"
	whole := line + host + end
	for _, c := range []struct {
		name, head string
		lim        Limits
		n          int
		want       Refusal
	}{
		{"head of exactly the limit", whole, Limits{HeaderBytes: len(whole)}, len(whole), 0},
		{"more bytes after a head of the limit", whole + "x", Limits{HeaderBytes: len(whole)}, len(whole), 0},
		{"head one byte over", whole, Limits{HeaderBytes: len(whole) - 1}, 0, RefusalHeadersTooLarge},
		{"unfinished head at the limit", line + host, Limits{HeaderBytes: len(line + host)}, 0, RefusalHeadersTooLarge},
		{"unfinished head below the limit", line + host, Limits{HeaderBytes: len(line+host) + 1}, 0, 0},
		{"unfinished request line at the limit", "GET /aaaa", Limits{HeaderBytes: 9}, 0, RefusalTargetTooLong},
		{"request line over the limit", "GET /aaaa HTTP/1.1\r\n" + host + end, Limits{HeaderBytes: 19}, 0, RefusalTargetTooLong},
		{"empty line counts", "\r\n" + whole, Limits{HeaderBytes: len(whole)}, 0, RefusalHeadersTooLarge},
		{"fields at the limit", line + host + "A: b\r\n" + end, Limits{Headers: 2}, len(whole) + 6, 0},
		{"fields over the limit", line + host + "A: b\r\n" + "C: d\r\n", Limits{Headers: 2}, 0, RefusalTooManyHeaders},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Request
			n, err := r.Parse([]byte(c.head), c.lim)
			if c.want != 0 {
				wantRefusal(t, n, err, c.want, c.want.Status())
				return
			}
			if n != c.n || err != nil {
				t.Fatalf("n=%d err=%v, want n=%d", n, err, c.n)
			}
		})
	}
}

func TestRequestDefaultLimits(t *testing.T) {
	var r Request
	if n, err := r.Parse(largestHeaders(), Limits{}); n != DefaultHeaderBytes || err != nil {
		t.Fatalf("n=%d err=%v for a head of 64 KiB", n, err)
	}
	headers := "GET / HTTP/1.1\r\n" + strings.Repeat("Host: a\r\n", 101)
	_, err := r.Parse([]byte(headers), Limits{})
	wantRefusal(t, 0, err, RefusalTooManyHeaders, 431)
	_, err = r.Parse([]byte("GET /"+strings.Repeat("a", DefaultHeaderBytes)), Limits{})
	wantRefusal(t, 0, err, RefusalTargetTooLong, 414)
}

// A request read after another one must not keep anything of it.
func TestRequestForgetsTheOneBefore(t *testing.T) {
	first := "POST http://b/x?y HTTP/1.0\r\nHost: a\r\nConnection: close, x\r\nTE: trailers\r\nContent-Length: 5\r\n\r\n"
	second := "GET / HTTP/1.1\r\nHost: c\r\n\r\n"
	var r Request
	if _, err := r.Parse([]byte(first), Limits{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Parse([]byte(second), Limits{}); err != nil {
		t.Fatal(err)
	}
	if got, want := summary(&r), (requestSummary{authority: "c", path: "/"}); got != want || len(r.Headers) != 1 {
		t.Errorf("got %+v with %d fields", got, len(r.Headers))
	}
}

func TestResetDropsSpans(t *testing.T) {
	var r Request
	if _, err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Limits{}); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Parse([]byte("GET / HTTP/1.1\r\nHost: a"), Limits{}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	r.Reset()
	if r.pending != (headerProgress{}) || r.Method != nil || len(r.Headers) != 0 || cap(r.Headers) == 0 || r.Headers[:1][0].Name != nil || r.Headers[:1][0].Value != nil || r.Headers[:1][0].ID != Host {
		t.Errorf("after Reset: %+v", r)
	}
}

// A usual method stays when the buffer of its request is used again.
func TestAUsualMethodIsNoSpan(t *testing.T) {
	for _, method := range []string{"GET", "POST", "PUT"} {
		var r Request
		b := []byte(method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
		if _, err := r.Parse(b, Limits{}); err != nil {
			t.Fatal(err)
		}
		clear(b)
		if string(r.Method) != method {
			t.Errorf("%s became %q", method, r.Method)
		}
	}
}
