package forward

import (
	"bufio"
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
)

// hopByHop are the names that no forwarded head may have as they came; the
// proxy's own Connection, TE, Upgrade and Trailer are looked at apart.
var hopByHop = []string{"keep-alive", "proxy-connection", "http2-settings", "proxy-authenticate",
	"proxy-authentication-info", "proxy-authorization", "expect"}

// ours are the names whose values may change.
var ours = []http1.Name{http1.Host, http1.ContentLength, http1.TransferEncoding, http1.Connection, http1.TE, http1.Upgrade, http1.Trailer,
	http1.MaxForwards, http1.XForwardedFor, http1.XForwardedProto, http1.XForwardedHost, http1.Forwarded, http1.ForwardedTwin, http1.Via,
	http1.XRequestID, http1.XRetryproxyAttempt, http1.XRetryproxyAttempts, http1.XRetryproxyReason, http1.XRetryproxyOther}

// survivors lists the fields that must come through unchanged and in order,
// found the slow way.
func survivors(fields []http1.Field) []string {
	options := connectionOptions(make([][]byte, 0, maxOptions), fields)
	var out []string
	for _, f := range fields {
		if slices.Contains(ours, f.ID) || slices.Contains(hopByHop, strings.ToLower(string(f.Name))) {
			continue
		}
		if f.ID == http1.NameOther && slices.ContainsFunc(options, func(o []byte) bool { return strings.EqualFold(string(o), string(f.Name)) }) {
			continue
		}
		out = append(out, string(f.Name)+": "+string(f.Value))
	}
	return out
}

// checkFields compares a head with what came of it.
func checkFields(t *testing.T, in, out []http1.Field) {
	t.Helper()
	if want, got := survivors(in), survivors(out); !slices.Equal(want, got) {
		t.Fatalf("fields %q became %q", want, got)
	}
	for _, f := range out {
		if slices.Contains(hopByHop, strings.ToLower(string(f.Name))) || f.ID == http1.ForwardedTwin {
			t.Fatalf("%s got through", f.Name)
		}
	}
	for _, id := range []http1.Name{http1.ContentLength, http1.TransferEncoding, http1.Connection, http1.TE, http1.Upgrade, http1.XRetryproxyAttempts, http1.XRetryproxyReason} {
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

func FuzzRequestHead(f *testing.F) {
	for _, s := range []string{
		wire("GET /api/x?y HTTP/1.1", "Host: localhost:80", "Connection: close, X-Hop", "X-Hop: 1", "TE: trailers", "X-Forwarded-For: 192.0.2.1"),
		wire("POST http://b/x HTTP/1.1", "Host: a", "Transfer-Encoding: chunked", "Trailer: X", "Expect: 100-continue", "Via: 1.0 a"),
		wire("OPTIONS * HTTP/1.1", "Host: a", "Max-Forwards: 3", "Upgrade: websocket", "Connection: upgrade", "Forwarded: for=1"),
		wire("PUT /api HTTP/1.0", "Content-Length: 3", "X-Request-Id: ä", "X-Request-Id: b", "X_Forwarded_For: 1", "X-Retryproxy-Attempt: 3"),
	} {
		f.Add(s + "\r\n")
	}
	f.Fuzz(func(t *testing.T, head string) {
		var in, out, again http1.Request
		if n, err := in.Parse([]byte(head), http1.Limits{}); n == 0 || err != nil {
			return
		}
		s := Settings{Host: HostPreserve, UpstreamHost: "up.example", StripPrefix: "/api", Forwarded: true, Via: "edge"}
		first := AppendAttempt(AppendRequestHead(nil, &in, &s, &nobody, []byte("id"), []byte("key")), 1, false)
		if n, err := out.Parse(first, http1.Limits{HeadBytes: 1 << 20, Fields: 1000}); n != len(first) || err != nil {
			t.Fatalf("%q became %q, which does not parse: %v", head, first, err)
		}
		if out.Body != in.Body || !bytes.Equal(out.Method, in.Method) || !bytes.Equal(out.Query, in.Query) || out.Minor != 1 || out.Form == http1.Absolute {
			t.Fatalf("%q became %q", head, first)
		}
		checkFields(t, in.Fields, slices.DeleteFunc(slices.Clone(out.Fields), func(f http1.Field) bool {
			return f.ID == http1.IdempotencyKey && in.Get(http1.IdempotencyKey) == nil
		}))
		if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(first))); err != nil {
			t.Fatalf("%q became %q, which net/http refuses: %v", head, first, err)
		}
		s = Settings{Host: HostPreserve, UpstreamHost: "up.example"}
		second := AppendAttempt(AppendRequestHead(nil, &out, &s, &nobody, []byte("id"), nil), 1, false)
		if n, err := again.Parse(second, http1.Limits{HeadBytes: 1 << 20, Fields: 1000}); n != len(second) || err != nil {
			t.Fatalf("%q does not parse: %v", second, err)
		}
		third := AppendAttempt(AppendRequestHead(nil, &again, &s, &nobody, []byte("id"), nil), 1, false)
		if string(second) != string(third) && in.Get(http1.MaxForwards) == nil {
			t.Fatalf("not idempotent: %q, then %q", second, third)
		}
	})
}

func FuzzResponseHead(f *testing.F) {
	for _, s := range []string{
		wire("HTTP/1.1 200 OK", "Content-Length: 3", "Connection: close, X-Hop", "X-Hop: 1", "Set-Cookie: a", "Set-Cookie: b"),
		wire("HTTP/1.0 503 ", "Retry-After: 3", "X-Retryproxy-Attempts: 3", "X-Retryproxy-Attempts: 3", "X-Retryproxy-Reason: deadline"),
		wire("HTTP/1.1 200 OK", "Transfer-Encoding: chunked", "Trailer: X", "Via: 1.1 a"),
		wire("HTTP/1.1 426 Upgrade", "Upgrade: websocket", "Content-Length: 0"),
		wire("HTTP/1.1 304 Not Modified", "Content-Length: 7"),
		wire("HTTP/1.1 103 Early Hints", "Link: a"),
	} {
		f.Add(s+"\r\n", "GET", byte(1), false)
	}
	f.Fuzz(func(t *testing.T, head, method string, minor byte, ends bool) {
		var in, out http1.Response
		if n, err := in.Parse([]byte(head), http1.Limits{}, []byte(method)); n == 0 || err != nil || in.Status == 101 {
			return
		}
		o := ResponseOptions{Framing: in.Body, Minor: int(minor & 1), Close: ends, Attempts: 2, Reason: "deadline", Via: "edge"}
		first := AppendResponseHead(nil, &in, &o)
		if n, err := out.Parse(first, http1.Limits{HeadBytes: 1 << 20, Fields: 1000}, []byte(method)); n != len(first) || err != nil {
			t.Fatalf("%q became %q, which does not parse: %v", head, first, err)
		}
		if out.Body != in.Body || out.Status != in.Status || out.Length != in.Length && in.Status != 204 {
			t.Fatalf("%q became %q", head, first)
		}
		if out.Close != (ends || in.Body.Kind == http1.BodyClose) && in.Status >= 200 && in.Status != 204 {
			t.Fatalf("%q became %q", head, first)
		}
		checkFields(t, in.Fields, out.Fields)
		res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(first)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("%q became %q, which net/http refuses: %v", head, first, err)
		}
		_ = res.Body.Close()
		o.Via = ""
		second := AppendResponseHead(nil, &out, &o)
		if n, err := out.Parse(second, http1.Limits{HeadBytes: 1 << 20, Fields: 1000}, []byte(method)); n != len(second) || err != nil {
			t.Fatalf("%q does not parse: %v", second, err)
		}
		if third := AppendResponseHead(nil, &out, &o); string(second) != string(third) {
			t.Fatalf("not idempotent: %q, then %q", second, third)
		}
	})
}
