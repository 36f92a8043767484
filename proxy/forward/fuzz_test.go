package forward

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

// hopByHop are the names that no forwarded head may have as they came; the
// proxy's own Connection, TE, Upgrade and Trailer are looked at apart.
var hopByHop = []string{"keep-alive", "proxy-connection", "http2-settings", "proxy-authenticate",
	"proxy-authentication-info", "proxy-authorization", "expect"}

// ours are the names whose values may change.
var ours = []http1.HeaderName{http1.Host, http1.ContentLength, http1.TransferEncoding, http1.Connection, http1.TE, http1.Upgrade, http1.Trailer,
	http1.MaxForwards, http1.XForwardedFor, http1.XForwardedProto, http1.XForwardedHost, http1.Forwarded, http1.ForwardedLookalike, http1.Via,
	http1.XRequestID, http1.XRetryproxyAttempt, http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther}

// forwardedHeaders lists the fields that must come through unchanged and in order,
// found the slow way.
func forwardedHeaders(headers []http1.Header) []string {
	options := connectionOptions(make([][]byte, 0, maxOptions), headers)
	var out []string
	for _, f := range headers {
		if slices.Contains(ours, f.ID) || slices.Contains(hopByHop, strings.ToLower(string(f.Name))) {
			continue
		}
		if f.ID == http1.OtherHeader && slices.ContainsFunc(options, func(o []byte) bool { return strings.EqualFold(string(o), string(f.Name)) }) {
			continue
		}
		out = append(out, string(f.Name)+": "+string(f.Value))
	}
	return out
}

// checkHeaders compares a header section with what came of it.
func checkHeaders(t *testing.T, in, out []http1.Header) {
	t.Helper()
	if want, got := forwardedHeaders(in), forwardedHeaders(out); !slices.Equal(want, got) {
		t.Fatalf("fields %q became %q", want, got)
	}
	for _, f := range out {
		if slices.Contains(hopByHop, strings.ToLower(string(f.Name))) || f.ID == http1.ForwardedLookalike {
			t.Fatalf("%s got through", f.Name)
		}
	}
	for _, id := range []http1.HeaderName{http1.ContentLength, http1.TransferEncoding, http1.Connection, http1.TE, http1.Upgrade, http1.XRetryproxyAttempts, http1.XRetryproxyReason} {
		n := 0
		for _, f := range out {
			if f.ID == id {
				n++
			}
		}
		if n > 1 && id != http1.Connection {
			t.Fatalf("%d fields %s", n, id)
		}
	}
}

func FuzzRequestHeaders(f *testing.F) {
	for _, s := range []string{
		headerLines("GET /api/x?y HTTP/1.1", "Host: localhost:80", "Connection: close, X-Hop", "X-Hop: 1", "TE: trailers", "X-Forwarded-For: 192.0.2.1"),
		headerLines("POST http://b/x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Trailer: X", "Expect: 100-continue", "Via: 1.0 a"),
		headerLines("OPTIONS * HTTP/1.1", "Host: a", "Max-Forwards: 3", "Upgrade: websocket", "Connection: upgrade", "Forwarded: for=1"),
		headerLines("PUT /api HTTP/1.0", "Content-Length: 3", "X-Request-Id: ä", "X-Request-Id: b", "X_Forwarded_For: 1", "X-Retryproxy-Attempt: 3"),
	} {
		f.Add(s + "\r\n")
	}
	f.Fuzz(func(t *testing.T, section string) {
		var in, out, reread http1.Request
		if n, err := in.Parse([]byte(section), http1.Limits{}); n == 0 || err != nil {
			return
		}
		s := Settings{Host: HostRule{Mode: HostPreserve}, UpstreamHost: "up.example", StripPrefix: "/api"}
		first := AppendAttempt(wire.Lines, AppendRequestHeaders(nil, &in, &s, &nobody, []byte("id"), []byte("key")), 1, false)
		if n, err := out.Parse(first, http1.Limits{HeaderBytes: 1 << 20, Headers: 1000}); n != len(first) || err != nil {
			t.Fatalf("%q became %q, which does not parse: %v", section, first, err)
		}
		if out.Body != in.Body || !bytes.Equal(out.Method, in.Method) || !bytes.Equal(out.Query, in.Query) || out.Minor != 1 || out.Form == http1.Absolute {
			t.Fatalf("%q became %q", section, first)
		}
		checkHeaders(t, in.Headers, slices.DeleteFunc(slices.Clone(out.Headers), func(f http1.Header) bool {
			return f.ID == http1.IdempotencyKey && in.Get(http1.IdempotencyKey) == nil
		}))
		if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(first))); err != nil {
			t.Fatalf("%q became %q, which net/http refuses: %v", section, first, err)
		}
		s = Settings{Host: HostRule{Mode: HostPreserve}, UpstreamHost: "up.example"}
		second := AppendAttempt(wire.Lines, AppendRequestHeaders(nil, &out, &s, &nobody, []byte("id"), nil), 1, false)
		if n, err := reread.Parse(second, http1.Limits{HeaderBytes: 1 << 20, Headers: 1000}); n != len(second) || err != nil {
			t.Fatalf("%q does not parse: %v", second, err)
		}
		third := AppendAttempt(wire.Lines, AppendRequestHeaders(nil, &reread, &s, &nobody, []byte("id"), nil), 1, false)
		if string(second) != string(third) && in.Get(http1.MaxForwards) == nil {
			t.Fatalf("not idempotent: %q, then %q", second, third)
		}
	})
}

func FuzzResponseHeaders(f *testing.F) {
	for _, s := range []string{
		headerLines("HTTP/1.1 200 OK", "Content-Length: 3", "Connection: close, X-Hop", "X-Hop: 1", "Set-Cookie: a", "Set-Cookie: b"),
		headerLines("HTTP/1.0 503 ", "Retry-After: 3", "X-Retryproxy-Attempts: 3", "X-Retryproxy-Attempts: 3", "X-Retryproxy-Reason: deadline"),
		headerLines("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Trailer: X", "Via: 1.1 a"),
		headerLines("HTTP/1.1 426 Upgrade", "Upgrade: websocket", "Content-Length: 0"),
		headerLines("HTTP/1.1 304 Not Modified", "Content-Length: 7"),
		headerLines("HTTP/1.1 103 Early Hints", "Link: a"),
	} {
		f.Add(s+"\r\n", "GET", byte(1), false)
	}
	f.Fuzz(func(t *testing.T, section, method string, minor byte, ends bool) {
		var in, out http1.Response
		if n, err := in.Parse([]byte(section), http1.Limits{}, []byte(method)); n == 0 || err != nil || in.Status == 101 {
			return
		}
		o := ResponseOptions{Framing: in.Body, Minor: int(minor & 1), Close: ends, Attempts: 2, Reason: "deadline"}
		first := AppendResponseHeaders(nil, &in, &o)
		if n, err := out.Parse(first, http1.Limits{HeaderBytes: 1 << 20, Headers: 1000}, []byte(method)); n != len(first) || err != nil {
			t.Fatalf("%q became %q, which does not parse: %v", section, first, err)
		}
		if out.Body != in.Body || out.Status != in.Status || out.Length != in.Length && in.Status != 204 {
			t.Fatalf("%q became %q", section, first)
		}
		if out.Close != (ends || in.Body.Kind == http1.BodyClose) && in.Status >= 200 && in.Status != 204 {
			t.Fatalf("%q became %q", section, first)
		}
		checkHeaders(t, in.Headers, out.Headers)
		res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(first)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q became %q, which net/http refuses: %v", section, first, err)
		}
		_ = res.Body.Close()
		second := AppendResponseHeaders(nil, &out, &o)
		if n, err := out.Parse(second, http1.Limits{HeaderBytes: 1 << 20, Headers: 1000}, []byte(method)); n != len(second) || err != nil {
			t.Fatalf("%q does not parse: %v", second, err)
		}
		if third := AppendResponseHeaders(nil, &out, &o); string(second) != string(third) {
			t.Fatalf("not idempotent: %q, then %q", second, third)
		}
	})
}
