package forward

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

func TestRequestHeaders(t *testing.T) {
	trusted := Peer{Addr: netip.MustParseAddr("10.0.0.9"), Text: "10.0.0.9", Trusted: true, TrustConfigured: true, Secure: true}
	stranger := trusted
	stranger.Trusted = false
	for _, c := range []struct {
		name     string
		in       []string
		settings Settings
		peer     Peer // zero: nobody
		id, key  string
		want     []string
	}{
		{
			name: "plain fields keep order, case and duplicates",
			in:   []string{"GET /a?b=%2F&c HTTP/1.1", "hOST: a.example", "X-A: 1", "accept: */*", "X-A:2", "x-a:   1  ", "Empty:", "Cookie: a=b", "Cookie: c=d"},
			want: []string{"GET /a?b=%2F&c HTTP/1.1", "hOST: a.example", "X-A: 1", "accept: */*", "X-A: 2", "x-a: 1", "Empty: ", "Cookie: a=b", "Cookie: c=d",
				"X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "hop-by-hop fields end here",
			in: []string{"GET / HTTP/1.1", "Host: a.example", "Connection: close, X-Hop", "Keep-Alive: timeout=5", "Proxy-Connection: keep-alive", "x-hop: 1",
				"X-Hopper: 1", "TE: gzip", "Trailer: X-T", "Upgrade: websocket", "Proxy-Authorization: Basic x", "Proxy-Authenticate: x", "Proxy-Authentication-Info: x", "HTTP2-Settings: AAAA", "Expect: 100-continue", "Z: z"},
			want: []string{"GET / HTTP/1.1", "Host: a.example", "X-Hopper: 1", "Z: z", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "Connection cannot take known fields off",
			in: []string{"POST / HTTP/1.1", "Connection: Host, Content-Length, Authorization, Cookie, X-Forwarded-For, X-Request-Id, Cache-Control, X-Retryproxy-Attempt, X-Own",
				"Host: a.example", "Content-Length: 5", "Authorization: x", "Cookie: y", "X-Forwarded-For: 192.0.2.1", "X-Request-Id: r", "Cache-Control: no-store", "X-Own: 1"},
			id: "r",
			want: []string{"POST / HTTP/1.1", "Host: a.example", "Content-Length: 5", "Authorization: x", "Cookie: y", "X-Forwarded-For: 192.0.2.1", "X-Request-Id: r", "Cache-Control: no-store",
				"X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "trailers: TE and Trailer stay with a chunked body",
			in:   []string{"POST / HTTP/1.1", "Host: a.example", "TE: gzip, trailers", "Transfer-Encoding: Chunked", "Trailer: X-T", "A: a"},
			want: []string{"POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked", "Trailer: X-T", "A: a",
				"X-Forwarded-Proto: http", "X-Forwarded-Host: a.example", "Connection: TE", "TE: trailers"},
		},
		{
			name: "a Trailer that names framing is left out: net/http refuses such a request, others read on",
			in:   []string{"POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked", "Trailer: X-T, Content-Length", "Trailer: transfer-encoding", "Trailer: X-U"},
			want: []string{"POST / HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked", "Trailer: X-U", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "an HTTP/1.0 client becomes 1.1, without trailers, and gets a Host",
			in:   []string{"GET / HTTP/1.0", "TE: trailers", "A: a"},
			want: []string{"GET / HTTP/1.1", "Host: up.example", "A: a", "X-Forwarded-Proto: http"},
		},
		{
			name: "upgrade",
			in:   []string{"GET /chat HTTP/1.1", "Host: a.example", "upgrade: websocket", "connection: Upgrade", "Sec-WebSocket-Key: k", "TE: trailers"},
			want: []string{"GET /chat HTTP/1.1", "Host: a.example", "Sec-WebSocket-Key: k", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example",
				"Connection: upgrade, TE", "TE: trailers", "Upgrade: websocket"},
		},
		{
			name: "an empty body that was announced stays announced",
			in:   []string{"POST / HTTP/1.1", "A: a", "content-length: 0", "Host: a.example"},
			want: []string{"POST / HTTP/1.1", "A: a", "Content-Length: 0", "Host: a.example", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "a body that was not announced is not",
			in:   []string{"POST / HTTP/1.1", "Host: a.example"},
			want: []string{"POST / HTTP/1.1", "Host: a.example", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "absolute form becomes origin form, its authority the Host",
			in:   []string{"GET http://b.example:81/x?y HTTP/1.1", "Host: a.example"},
			want: []string{"GET /x?y HTTP/1.1", "Host: b.example:81", "X-Forwarded-Proto: http", "X-Forwarded-Host: b.example:81"},
		},
		{
			name: "absolute form without path",
			in:   []string{"GET http://b.example?y HTTP/1.1", "Host: a.example"},
			want: []string{"GET /?y HTTP/1.1", "Host: b.example", "X-Forwarded-Proto: http", "X-Forwarded-Host: b.example"},
		},
		{
			name: "OPTIONS * stays, Max-Forwards counts down",
			in:   []string{"OPTIONS * HTTP/1.1", "Host: a.example", "max-forwards: 10"},
			want: []string{"OPTIONS * HTTP/1.1", "Host: a.example", "max-forwards: 9", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "Max-Forwards ends at 0",
			in:   []string{"TRACE /a? HTTP/1.1", "Host: a.example", "Max-Forwards: 0"},
			want: []string{"TRACE /a? HTTP/1.1", "Host: a.example", "Max-Forwards: 0", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "Max-Forwards means nothing with GET",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "Max-Forwards: 10"},
			want: []string{"GET / HTTP/1.1", "Host: a.example", "Max-Forwards: 10", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "forwarding fields of anyone are continued while no proxies are configured",
			in: []string{"GET / HTTP/1.1", "Host: a.example", "x-forwarded-for: 192.0.2.1", "X-Forwarded-Proto: https", "B: b", "X-Forwarded-For:", "X-Forwarded-For: 192.0.2.2, 192.0.2.3",
				"X-Forwarded-Host: c.example", "X-Forwarded-Port: 443", "X_Forwarded_For: 6.6.6.6"},
			peer: client("2001:db8::1"),
			want: []string{"GET / HTTP/1.1", "Host: a.example", "x-forwarded-for: 192.0.2.1, 192.0.2.2, 192.0.2.3, 2001:db8::1", "X-Forwarded-Proto: https", "B: b",
				"X-Forwarded-Host: c.example", "X-Forwarded-Port: 443"},
		},
		{
			name: "an empty list gets no comma",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For:", "X-Forwarded-Proto: http"},
			peer: client("192.0.2.7"),
			want: []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "forwarding fields of a stranger are dropped",
			in: []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: ftp", "X-Forwarded-Host: evil", "X-Forwarded-Port: 1",
				"X-Real-IP: 6.6.6.6", "Forwarded: for=6.6.6.6", "Via: 1.1 x"},
			peer: stranger,
			want: []string{"GET / HTTP/1.1", "Host: a.example", "Via: 1.1 x", "X-Forwarded-For: 10.0.0.9", "X-Forwarded-Proto: https", "X-Forwarded-Host: a.example"},
		},
		{
			name: "forwarding fields of a trusted proxy are continued",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: b.example", "X-Real-IP: 192.0.2.1", "Forwarded: for=192.0.2.1"},
			peer: trusted,
			want: []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For: 192.0.2.1, 10.0.0.9", "X-Forwarded-Proto: http", "X-Forwarded-Host: b.example", "X-Real-IP: 192.0.2.1", "Forwarded: for=192.0.2.1"},
		},
		{
			name: "a unix socket adds no address",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-For:"},
			want: []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "trace context as it came",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "TraceParent: 00-x", "tracestate: a=1", "Tracestate: b=2", "baggage: c=3", "traceparent: 00-y"},
			want: []string{"GET / HTTP/1.1", "Host: a.example", "TraceParent: 00-x", "tracestate: a=1", "Tracestate: b=2", "baggage: c=3", "traceparent: 00-y",
				"X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name:     "trace context ejected for what each attempt has",
			in:       []string{"GET / HTTP/1.1", "Host: a.example", "TraceParent: 00-x", "tracestate: a=1", "baggage: c=3", "Connection: traceparent"},
			settings: Settings{OmitTrace: true},
			want:     []string{"GET / HTTP/1.1", "Host: a.example", "baggage: c=3", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "a request id in the place of what was no good, once",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "x-request-id: no good", "A: a", "X-Request-Id: other"},
			id:   "0123",
			want: []string{"GET / HTTP/1.1", "Host: a.example", "x-request-id: 0123", "A: a", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
		{
			name: "a request id and a key added",
			in:   []string{"GET / HTTP/1.1", "Host: a.example"},
			id:   "0123", key: "k",
			want: []string{"GET / HTTP/1.1", "Host: a.example", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example", "X-Request-Id: 0123", "Idempotency-Key: k"},
		},
		{
			name: "the client's own key stays",
			in:   []string{"GET / HTTP/1.1", "Host: a.example", "idempotency-key: mine", "X-Request-Id: no good"},
			key:  "k",
			want: []string{"GET / HTTP/1.1", "Host: a.example", "idempotency-key: mine", "X-Request-Id: no good", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.example"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.settings.UpstreamHost = "up.example"
			if c.peer == (Peer{}) {
				c.peer = nobody
			}
			got := AppendRequestHeaders([]byte("before"), parseRequest(t, headerLines(c.in...)), &c.settings, &c.peer, optional(c.id), optional(c.key))
			compare(t, string(got), "before"+headerLines(c.want...))
		})
	}
}

func optional(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// Requests that were not parsed from bytes, as those of HTTP/2, may lack the
// framing field or have it more than once.
func TestFramingIsWrittenFromTheBody(t *testing.T) {
	for _, c := range []struct {
		fields []http1.Header
		body   http1.Framing
		want   string
	}{
		{nil, http1.Framing{Kind: http1.BodyLength, Length: 3}, "Content-Length: 3\r\n"},
		{nil, http1.Framing{Kind: http1.BodyChunked}, "Transfer-Encoding: chunked\r\n"},
		{nil, http1.Framing{}, ""},
		{[]http1.Header{http1.NewHeader("content-length", "3"), http1.NewHeader("Content-Length", "3")}, http1.Framing{Kind: http1.BodyChunked}, "Transfer-Encoding: chunked\r\n"},
		{[]http1.Header{http1.NewHeader("Content-Length", "3"), http1.NewHeader("Content_Length", "9")}, http1.Framing{}, ""},
	} {
		r := &http1.Request{Method: []byte("PUT"), Path: []byte("/"), Authority: []byte("h"), Minor: 1, Headers: c.fields, Body: c.body}
		compare(t, string(AppendRequestHeaders(nil, r, &Settings{}, &nobody, nil, nil)),
			headerLines("PUT / HTTP/1.1", "Host: h")+c.want+headerLines("X-Forwarded-Proto: http", "X-Forwarded-Host: h"))
	}
}

func TestAttempt(t *testing.T) {
	compare(t, string(AppendAttempt(wire.Lines, []byte("x"), 1, true)), "xX-Retryproxy-Attempt: 1\r\nExpect: 100-continue\r\n\r\n")
	compare(t, string(AppendAttempt(wire.Lines, nil, 12, false)), "X-Retryproxy-Attempt: 12\r\n\r\n")
}

func TestConnectionOptionsBeyondTheBoundAreIgnored(t *testing.T) {
	section := headerLines("GET / HTTP/1.1", "Host: a", "Connection: "+strings.Repeat("x, ", maxOptions-2)+"in1, close", "Connection: out", "in1: 1", "out: 1")
	got := string(AppendRequestHeaders(nil, parseRequest(t, section), &Settings{}, &nobody, nil, nil))
	if strings.Contains(got, "in1") || !strings.Contains(got, "out: 1") {
		t.Errorf("got %q", got)
	}
}

func TestStripPrefix(t *testing.T) {
	for _, c := range []struct{ prefix, target, want string }{
		{"/api", "/api/x", "/x"},
		{"/api/", "/api/x?q=/api", "/x?q=/api"},
		{"/api", "/api", "/"},
		{"/api", "/api?q", "/?q"},
		{"/api", "/api/", "/"},
		{"/api", "/apix/y", "/apix/y"},
		{"/api", "/x/api/y", "/x/api/y"},
		{"/api", "/ap", "/ap"},
		{"/api", "/api//x", "//x"},
		{"/api/v1", "/api/v1/%2Fx", "/%2Fx"},
		{"/api", "http://h/api/x", "/x"},
		{"/", "/api", "/api"},
		{"", "/api", "/api"},
	} {
		r := parseRequest(t, headerLines("GET "+c.target+" HTTP/1.1", "Host: h"))
		line, _, _ := strings.Cut(string(AppendRequestHeaders(nil, r, &Settings{StripPrefix: c.prefix}, &nobody, nil, nil)), "\r\n")
		if want := "GET " + c.want + " HTTP/1.1"; line != want {
			t.Errorf("%s off %s: %q, want %q", c.prefix, c.target, line, want)
		}
	}
	r := parseRequest(t, headerLines("OPTIONS * HTTP/1.1", "Host: h"))
	if got := string(AppendRequestHeaders(nil, r, &Settings{StripPrefix: "/api"}, &nobody, nil, nil)); !strings.HasPrefix(got, "OPTIONS * HTTP/1.1\r\n") {
		t.Errorf("OPTIONS *: %q", got)
	}
}

func TestMaxForwards(t *testing.T) {
	for _, c := range []struct {
		method string
		fields []string
		n      int
		ok     bool
	}{
		{"OPTIONS", []string{"Max-Forwards: 0"}, 0, true},
		{"TRACE", []string{"max-forwards: 7"}, 7, true},
		{"OPTIONS", []string{"Max-Forwards: 99999999999"}, 1<<31 - 1, true},
		{"OPTIONS", nil, 0, false},
		{"GET", []string{"Max-Forwards: 0"}, 0, false},
		{"OPTIONS", []string{"Max-Forwards: x"}, 0, false},
		{"OPTIONS", []string{"Max-Forwards: -1"}, 0, false},
		{"OPTIONS", []string{"Max-Forwards: 0", "Max-Forwards: 5"}, 0, false},
	} {
		r := parseRequest(t, headerLines(append([]string{c.method + " / HTTP/1.1", "Host: h"}, c.fields...)...))
		if n, ok := MaxForwards(r); n != c.n || ok != c.ok {
			t.Errorf("%s %v: %d, %v; want %d, %v", c.method, c.fields, n, ok, c.n, c.ok)
		}
	}
}

func TestRequestIDTakenOverOrMade(t *testing.T) {
	for id, kept := range map[string]bool{
		"a":                                    true,
		"Root=1-67891233-abcdef":               true,
		"0af7651916cd43dd8448eb211c80319c/1@x": true,
		strings.Repeat("a", 128):               true,
		strings.Repeat("a", 129):               false,
		"":                                     false,
		"a b":                                  false,
		"a,b":                                  false,
		`a"b`:                                  false,
		"a\x80":                                false,
		"${jndi}":                              false,
	} {
		r := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: h", "X-Request-ID: "+id))
		got := string(RequestID(r, nil))
		if (got == id) != kept {
			t.Errorf("%q became %q", id, got)
		}
		if !kept && (len(got) != RandomIDLen || strings.Trim(got, "0123456789abcdef") != "") {
			t.Errorf("%q is no random id", got)
		}
	}
	r := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: h"))
	if a, b := string(RequestID(r, nil)), string(RequestID(r, nil)); a[:16] == b[:16] || a[16:] == b[16:] {
		t.Errorf("not 128 random bits: %s, %s", a, b)
	}
}

func TestHost(t *testing.T) {
	own := []string{"proxy.internal:8080", "proxy.internal:80", "[2001:db8::5]:443", "any.internal", "[2001:db8::6]"}
	for _, c := range []struct {
		mode        HostMode
		client      string
		proto, want string
	}{
		{HostAuto, "a.example", "http", "a.example"},
		{HostAuto, "localhost", "http", "up.example"},
		{HostAuto, "LocalHost.:8080", "http", "up.example"},
		{HostAuto, "localhost:8080", "http", "up.example"},
		{HostAuto, "LocalHost:8080", "http", "up.example"},
		{HostAuto, "app.localhost:1", "http", "up.example"},
		{HostAuto, "notlocalhost", "http", "notlocalhost"},
		{HostAuto, "localhost.example", "http", "localhost.example"},
		{HostAuto, "127.0.0.1:8080", "http", "up.example"},
		{HostAuto, "127.0-0.1", "http", "127.0-0.1"},
		{HostAuto, "127.1.2.3", "http", "up.example"},
		{HostAuto, "127.example.com", "http", "127.example.com"},
		{HostAuto, "128.0.0.1", "http", "128.0.0.1"},
		{HostAuto, "1270.0.0.1", "http", "1270.0.0.1"},
		{HostAuto, "[::1]:8080", "http", "up.example"},
		{HostAuto, "[0:0:0:0:0:0:0:1]", "http", "up.example"},
		{HostAuto, "[::ffff:127.0.0.1]", "http", "up.example"},
		{HostAuto, "[::2]", "http", "[::2]"},
		{HostAuto, "[::10]", "http", "[::10]"},
		{HostAuto, "[1::1]", "http", "[1::1]"},
		{HostAuto, "Proxy.Internal:8080", "http", "up.example"},
		{HostAuto, "proxy.internal", "http", "up.example"},
		{HostAuto, "proxy.internal", "https", "proxy.internal"},
		{HostAuto, "proxy.internal:81", "http", "proxy.internal:81"},
		{HostAuto, "[2001:DB8::5]", "https", "up.example"},
		{HostAuto, "any.internal:99", "http", "up.example"},
		{HostAuto, "[2001:db8::6]:99", "http", "up.example"},
		{HostPreserve, "localhost", "http", "localhost"},
		{HostUpstream, "a.example", "http", "up.example"},
	} {
		r := parseRequest(t, headerLines("GET / HTTP/1.1", "Host: "+c.client))
		s := Settings{Host: HostRule{Mode: c.mode}, UpstreamHost: "up.example", OwnHosts: own}
		p := Peer{Secure: c.proto == "https"}
		w := requestWriter{r: r, s: &s, p: &p}
		if got := string(w.appendHost(nil, hostName)); got != "Host: "+c.want+"\r\n" {
			t.Errorf("mode %d, %s: %q, want %s", c.mode, c.client, got, c.want)
		}
	}
}

func TestHostFallsBackToTheOtherOne(t *testing.T) {
	without := &http1.Request{}
	with := &http1.Request{Authority: []byte("localhost")}
	for _, c := range []struct {
		r    *http1.Request
		s    Settings
		want string
	}{
		{without, Settings{Host: HostRule{Mode: HostPreserve}, UpstreamHost: "up"}, "up"},
		{without, Settings{UpstreamHost: "up"}, "up"},
		{with, Settings{}, "localhost"},
		{with, Settings{Host: HostRule{Mode: HostUpstream}}, "localhost"},
		{with, Settings{Host: HostRule{Name: "name.example"}, UpstreamHost: "up"}, "name.example"},
		{with, Settings{Host: HostRule{Mode: HostPreserve, Name: "name.example"}}, "name.example"},
		{without, Settings{}, ""},
	} {
		w := requestWriter{r: c.r, s: &c.s, p: &nobody}
		if got := string(w.appendHost(nil, hostName)); got != "Host: "+c.want+"\r\n" {
			t.Errorf("%+v: %q, want %q", c.s, got, c.want)
		}
	}
}
