package headers

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// exchangeHeaders sends one request and gives the head that the upstream got and
// the whole response that the client got.
func exchangeHeaders(t *testing.T, change func(*proxy.Config), req, response string) (headers, got string) {
	t.Helper()
	u := peers.StartUpstream(t, peers.Script(response))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Default.Forward.UpstreamHost = "upstream.test:8080"
		if change != nil {
			change(c)
		}
	})
	req = strings.Replace(req, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)
	got, err := p.Dial().Send(req).Rest()
	if err != nil {
		t.Fatalf("answer: %v", err)
	}
	if u.Sends() != 1 {
		t.Fatalf("%d sends, want 1; the client got %q", u.Sends(), got)
	}
	return u.Head(0), got
}

func TestHeadersKeepOrderCaseAndDuplicates(t *testing.T) {
	fields := []string{"host: a", "x-B: 1", "Cookie: a=1", "X-b: 2", "COOKIE: b=2", "Accept: text/html;q=0.9, */*", "x-empty:", "X-Bytes: \xff\xfe \"q\""}
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET /p?q=%41&r HTTP/1.1", fields...), peers.OK200)
	want := strings.Replace(peers.RequestText("GET /p?q=%41&r HTTP/1.1", fields...), "x-empty:", "x-empty: ", 1)
	if got := peers.WithoutAdded(headers); got != want {
		t.Errorf("upstream got\n%q, want\n%q", got, want)
	}
	response := "HTTP/1.1 200 Fine\r\nset-cookie: a=1\r\nX-Z: 1\r\nSet-Cookie: b=2\r\nX-Now: 1\r\nx-z: 2\r\nContent-Length: 2\r\nServer: s\r\n\r\nok"
	_, got := exchangeHeaders(t, peers.AddNothingToResponses, peers.Get("/"), response)
	if want := strings.Replace(response, "\r\n\r\nok", "\r\nConnection: close\r\n\r\nok", 1); got != want {
		t.Errorf("client got\n%q, want\n%q", got, want)
	}
}

func TestNoAcceptEncodingIsAddedAndNothingIsDecoded(t *testing.T) {
	gzip := "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	response := "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n" + gzip
	headers, got := exchangeHeaders(t, peers.AddNothingToResponses, peers.Get("/"), response)
	if strings.Contains(headers, "Accept-Encoding") || strings.Contains(headers, "User-Agent") {
		t.Errorf("upstream got %q", headers)
	}
	if !strings.HasSuffix(got, "\r\n\r\n"+gzip) || !strings.Contains(got, "Content-Encoding: gzip\r\n") {
		t.Errorf("client got %q", got)
	}
}

func TestHopByHopHeadersEndHere(t *testing.T) {
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", "Host: a", "Connection: X-Hop, keep-alive", "X-Hop: 1", "x-hop: 2", "Keep-Alive: timeout=9",
		"Proxy-Connection: keep-alive", "TE: gzip", "Upgrade: nothing", "Proxy-Authorization: Basic eA==", "HTTP2-Settings: AAAA", "X-Kept: 1"), peers.OK200)
	if got, want := peers.WithoutAdded(headers), peers.RequestText("GET / HTTP/1.1", "Host: a", "X-Kept: 1"); got != want {
		t.Errorf("upstream got %q, want %q", got, want)
	}
	_, got := exchangeHeaders(t, peers.AddNothingToResponses, peers.Get("/"), "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authenticate: x\r\nUpgrade: h2c\r\nContent-Length: 2\r\nX-Kept: 1\r\n\r\nok")
	if want := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Kept: 1\r\nConnection: close\r\n\r\nok"; got != want {
		t.Errorf("client got %q, want %q", got, want)
	}
}

func TestConnectionCannotTakeHeadersThatOthersRelyOn(t *testing.T) {
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", "Host: a", "Connection: Authorization, Host, X-Forwarded-For, Content-Length", "Authorization: b"), peers.OK200)
	if peers.FieldOf(headers, "Authorization") != "b" || peers.FieldOf(headers, "Host") != "a" || peers.FieldOf(headers, "X-Forwarded-For") != "127.0.0.1" {
		t.Errorf("upstream got %q", headers)
	}
}

func TestTETrailersIsPassedOn(t *testing.T) {
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", "Host: a", "TE: trailers", "Connection: TE"), peers.OK200)
	if peers.FieldOf(headers, "TE") != "trailers" || peers.FieldOf(headers, "Connection") != "TE" {
		t.Errorf("upstream got %q", headers)
	}
}

func TestHostModes(t *testing.T) {
	cases := []struct {
		mode   forward.HostMode
		name   string
		client string
		want   string
	}{
		{forward.HostAuto, "", "public.example", "public.example"},
		{forward.HostAuto, "", "localhost:8080", "upstream.test:8080"},
		{forward.HostAuto, "", "127.0.0.1:1234", "upstream.test:8080"},
		{forward.HostAuto, "", "[::1]:80", "upstream.test:8080"},
		{forward.HostAuto, "", "proxy.internal:8081", "upstream.test:8080"},
		{forward.HostAuto, "", "proxy.internal:9999", "proxy.internal:9999"},
		{forward.HostPreserve, "", "localhost:8080", "localhost:8080"},
		{forward.HostUpstream, "", "public.example", "upstream.test:8080"},
		{forward.HostAuto, "fixed.example", "public.example", "fixed.example"},
	}
	for _, tc := range cases {
		headers, _ := exchangeHeaders(t, func(c *proxy.Config) {
			c.Default.Forward.Host = forward.HostRule{Mode: tc.mode, Name: tc.name}
			c.Default.Forward.OwnHosts = []string{"proxy.internal:8081"}
		}, peers.RequestText("GET / HTTP/1.1", "Host: "+tc.client), peers.OK200)
		if got := peers.FieldOf(headers, "Host"); got != tc.want || strings.Count(headers, "Host:") != 2 { // and X-Forwarded-Host
			t.Errorf("mode %d, Host %s: upstream got %q, want %q", tc.mode, tc.client, headers, tc.want)
		}
		if got := peers.FieldOf(headers, "X-Forwarded-Host"); got != tc.client {
			t.Errorf("X-Forwarded-Host %q, want %q", got, tc.client)
		}
	}
}

func TestAbsoluteFormReplacesHost(t *testing.T) {
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET http://b.example:81/p?q HTTP/1.1", "Host: a"), peers.OK200)
	if !strings.HasPrefix(headers, "GET /p?q HTTP/1.1\r\nHost: b.example:81\r\n") {
		t.Errorf("upstream got %q", headers)
	}
	headers, _ = exchangeHeaders(t, nil, peers.RequestText("OPTIONS http://b.example HTTP/1.1", "Host: a"), peers.OK200)
	if !strings.HasPrefix(headers, "OPTIONS * HTTP/1.1\r\nHost: b.example\r\n") {
		t.Errorf("upstream got %q", headers)
	}
	headers, _ = exchangeHeaders(t, nil, peers.RequestText("OPTIONS * HTTP/1.1", "Host: a"), peers.OK200)
	if !strings.HasPrefix(headers, "OPTIONS * HTTP/1.1\r\nHost: a\r\n") {
		t.Errorf("upstream got %q", headers)
	}
}

func TestForwardedHeaders(t *testing.T) {
	trust := func(prefixes ...string) func(*proxy.Config) {
		return func(c *proxy.Config) {
			c.TrustedProxies = []netip.Prefix{}
			for _, p := range prefixes {
				c.TrustedProxies = append(c.TrustedProxies, netip.MustParsePrefix(p))
			}
		}
	}
	given := []string{"Host: a", "X-Forwarded-For: 1.1.1.1", "X-Forwarded-Proto: https", "X-Forwarded-Host: h", "x-forwarded-for: 2.2.2.2"}
	type want struct{ addrs, proto, host string }
	for name, tc := range map[string]struct {
		change func(*proxy.Config)
		fields []string
		want   want
	}{
		"set when absent":             {nil, []string{"Host: a"}, want{"127.0.0.1", "http", "a"}},
		"appended to what came":       {nil, given, want{"1.1.1.1, 2.2.2.2, 127.0.0.1", "https", "h"}},
		"believed from trusted peers": {trust("10.0.0.0/8", "127.0.0.0/8"), given, want{"1.1.1.1, 2.2.2.2, 127.0.0.1", "https", "h"}},
		"dropped from anyone else":    {trust("10.0.0.0/8"), given, want{"127.0.0.1", "http", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			headers, _ := exchangeHeaders(t, tc.change, peers.RequestText("GET / HTTP/1.1", tc.fields...), peers.OK200)
			got := want{peers.FieldOf(headers, "X-Forwarded-For"), peers.FieldOf(headers, "X-Forwarded-Proto"), peers.FieldOf(headers, "X-Forwarded-Host")}
			if got != tc.want || strings.Count(strings.ToLower(headers), "x-forwarded-for:") != 1 {
				t.Errorf("got %+v, want %+v; %q", got, tc.want, headers)
			}
		})
	}
}

func TestForwardedAndViaAreForwardedAsReceived(t *testing.T) {
	req := peers.RequestText("GET / HTTP/1.1", "Host: a.example", "Forwarded: for=1.1.1.1", "Via: 1.0 x")
	headers, got := exchangeHeaders(t, nil, req, "HTTP/1.1 200 OK\r\nVia: 1.1 y\r\nContent-Length: 0\r\n\r\n")
	if peers.FieldOf(headers, "Forwarded") != "for=1.1.1.1" || peers.FieldOf(headers, "Via") != "1.0 x" || peers.FieldOf(got, "Via") != "1.1 y" {
		t.Errorf("upstream got %q, client %q", headers, got)
	}
}

func TestRequestIDIsAcceptedOrMade(t *testing.T) {
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", "Host: a", "x-request-id: mine-1"), peers.OK200)
	if !strings.Contains(headers, "\r\nx-request-id: mine-1\r\n") || strings.Count(strings.ToLower(headers), "x-request-id") != 1 {
		t.Errorf("upstream got %q", headers)
	}
	made := regexp.MustCompile(`\r\n(?i:X-Request-Id): [0-9a-f]{32}\r\n`)
	for _, field := range []string{"X: y", "X-Request-Id: has space", "X-Request-Id: " + strings.Repeat("x", 129)} {
		headers, _ = exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", "Host: a", field), peers.OK200)
		if !made.MatchString(headers) || strings.Count(headers, "X-Request-Id") != 1 {
			t.Errorf("%.30s: upstream got %q", field, headers)
		}
	}
}

func TestTheRequestIDIsTheSameForEveryAttemptAndInOurOwnResponses(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(""))
	p := proxytest.Start(t, u, nil)
	res, body, err := p.Dial().Send(peers.Get("/")).Response("GET")
	id := peers.FieldOf(u.Head(0), "X-Request-Id")
	if err != nil || id == "" || res.Header.Get("X-Request-Id") != id || peers.FieldOf(u.Head(3), "X-Request-Id") != id || !strings.Contains(body, id) {
		t.Errorf("ids %q and %q, answer %q, %v", id, peers.FieldOf(u.Head(3), "X-Request-Id"), body, err)
	}
}

// The client is told the id under which its request is in the logs, unless the upstream has one to tell.
func TestTheClientGetsTheRequestID(t *testing.T) {
	const theirs = "HTTP/1.1 200 OK\r\nX-REQUEST-ID: theirs\r\nContent-Length: 0\r\n\r\n"
	for _, tc := range []struct {
		request, response, want string
		change                  func(*proxy.Config)
	}{
		{"x-request-id: mine", peers.OK200, "X-Request-Id: mine", nil},
		{"x-request-id: mine", theirs, "X-REQUEST-ID: theirs", nil},
		{"x-request-id: mine", peers.OK200, "", peers.AddNothingToResponses},
		{"x-request-id: mine", theirs, "", peers.AddNothingToResponses},
	} {
		_, got := exchangeHeaders(t, tc.change, peers.RequestText("GET / HTTP/1.1", "Host: a", tc.request), tc.response)
		if n := strings.Count(strings.ToLower(got), "x-request-id"); tc.want == "" && n != 0 || tc.want != "" && (n != 1 || !strings.Contains(got, "\r\n"+tc.want+"\r\n")) {
			t.Errorf("%q: the client got %q", tc.want, got)
		}
	}
	headers, got := exchangeHeaders(t, nil, peers.Get("/"), peers.OK200)
	if id := peers.FieldOf(headers, "X-Request-Id"); len(id) != 32 || peers.FieldOf(got, "X-Request-Id") != id {
		t.Errorf("upstream got %q, the client %q", headers, got)
	}
}

func TestControlHeadersOfUntrustedClientsAreStripped(t *testing.T) {
	fields := []string{"Host: a", "X-Retryproxy-Attempts: 9", "X-Retryproxy-Reason: x", "X-Retryproxy-Future: 1", "X_Retryproxy_Attempt: 7", "X-Retryproxy-Attempt: 1"}
	headers, _ := exchangeHeaders(t, func(c *proxy.Config) { c.TrustedProxies = []netip.Prefix{} }, peers.RequestText("GET / HTTP/1.1", fields...), peers.OK200)
	if got, want := peers.WithoutAdded(headers), peers.RequestText("GET / HTTP/1.1", "Host: a"); got != want {
		t.Errorf("upstream got %q, want %q", got, want)
	}
	if peers.FieldOf(headers, "X-Retryproxy-Attempt") != "1" || strings.Count(headers, "X-Retryproxy-Attempt:") != 1 {
		t.Errorf("attempt number in %q", headers)
	}
	headers, _ = exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", fields...), peers.OK200)
	if peers.FieldOf(headers, "X-Retryproxy-Future") != "1" {
		t.Errorf("from loopback, without a set of trusted proxies, upstream got %q", headers)
	}
}

func TestAnInnerProxysMarksAreNeverDoubled(t *testing.T) {
	inner := "HTTP/1.1 503 No\r\nX-Retryproxy-Attempts: 4\r\nX-Retryproxy-Reason: deadline\r\nContent-Length: 0\r\n\r\n"
	_, got := exchangeHeaders(t, nil, peers.Get("/"), inner)
	if strings.Count(got, "X-Retryproxy-Attempts: 4\r\n") != 1 || strings.Count(got, "X-Retryproxy-Reason: deadline\r\n") != 1 || strings.Count(got, "X-Retryproxy") != 2 {
		t.Errorf("client got %q", got)
	}
}

func TestMaxForwards(t *testing.T) {
	for _, method := range []string{"OPTIONS", "TRACE"} {
		headers, _ := exchangeHeaders(t, nil, peers.RequestText(method+" / HTTP/1.1", "Host: a", "Max-Forwards: 2"), peers.OK200)
		if got := peers.FieldOf(headers, "Max-Forwards"); got != "1" {
			t.Errorf("%s: Max-Forwards %q upstream, want 1", method, got)
		}
	}
	headers, _ := exchangeHeaders(t, nil, peers.RequestText("GET / HTTP/1.1", "Host: a", "Max-Forwards: 0"), peers.OK200)
	if got := peers.FieldOf(headers, "Max-Forwards"); got != "0" {
		t.Errorf("GET: Max-Forwards %q upstream, want it untouched", got)
	}

	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	res := c.Send(peers.RequestText("OPTIONS * HTTP/1.1", "Host: a", "Max-Forwards: 0")).Want(200, "")
	if res.Header.Get("Allow") == "" || res.Close {
		t.Errorf("OPTIONS: %v", res.Header)
	}
	p.WantOutcome(0, policy.OutcomeSuccess)
	if res = c.Send(peers.RequestText("TRACE / HTTP/1.1", "Host: a", "Cookie: secret", "Max-Forwards: 0")).Want(405, "*"); res.Header.Get("Allow") == "" {
		t.Errorf("TRACE: %v", res.Header)
	}
	p.WantOutcome(1, policy.OutcomeRefused)
	res = c.Send(peers.RequestText("OPTIONS / HTTP/1.1", "Host: a", "Max-Forwards: 0", "Content-Length: 3")+"abc").Want(200, "")
	if !res.Close {
		t.Error("the body was left unread on a connection that goes on")
	}
	if u.Sends() != 0 {
		t.Errorf("%d sends, want none", u.Sends())
	}
}

func TestStripPrefix(t *testing.T) {
	strip := func(c *proxy.Config) { c.Default.Forward.StripPrefix = "/api" }
	for path, want := range map[string]string{"/api/x?y": "/x?y", "/api": "/", "/apix": "/apix", "/other": "/other"} {
		headers, _ := exchangeHeaders(t, strip, peers.Get(path), peers.OK200)
		if !strings.HasPrefix(headers, "GET "+want+" HTTP/1.1\r\n") {
			t.Errorf("%s: upstream got %q", path, headers)
		}
	}
}

// What the upstream has before every path is put before it, after the route's prefix is removed.
func TestBasePath(t *testing.T) {
	for _, strip := range []string{"", "/api"} {
		set := func(c *proxy.Config) { c.Default.Forward.BasePath, c.Default.Forward.StripPrefix = "/v2", strip }
		for path, want := range map[string]string{"/x?y": "/v2/x?y", "/": "/v2/", "/v2/x": "/v2/v2/x", "/a%2Fb": "/v2/a%2Fb", "//x": "/v2//x"} {
			headers, _ := exchangeHeaders(t, set, peers.Get(strip+path), peers.OK200)
			if !strings.HasPrefix(headers, "GET "+want+" HTTP/1.1\r\n") {
				t.Errorf("%s%s: upstream got %q", strip, path, headers)
			}
		}
	}
	for path, want := range map[string]string{"/api": "/v2", "/api?q": "/v2?q", "/api/": "/v2/"} { // no slash that the client did not send
		set := func(c *proxy.Config) { c.Default.Forward.BasePath, c.Default.Forward.StripPrefix = "/v2", "/api" }
		if headers, _ := exchangeHeaders(t, set, peers.Get(path), peers.OK200); !strings.HasPrefix(headers, "GET "+want+" HTTP/1.1\r\n") {
			t.Errorf("%s: upstream got %q", path, headers)
		}
	}
	set := func(c *proxy.Config) { c.Default.Forward.BasePath = "/v2" }
	if headers, _ := exchangeHeaders(t, set, peers.RequestText("OPTIONS * HTTP/1.1", "Host: a"), peers.OK200); !strings.HasPrefix(headers, "OPTIONS * ") {
		t.Errorf("upstream got %q", headers)
	}
}

func TestAReloadChangesWhomWeTrustOnOpenConnections(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	var first *proxy.Config
	p := proxytest.Start(t, u, func(c *proxy.Config) { first = c })
	c := p.Dial()
	req := peers.RequestText("GET / HTTP/1.1", "Host: a", "X-Forwarded-For: 1.1.1.1")
	c.Send(req).Want(200, "ok")
	second := *first
	second.TrustedProxies = []netip.Prefix{}
	if err := p.Reload(&second); err != nil {
		t.Fatal(err)
	}
	c.Send(req).Want(200, "ok")
	if a, b := peers.FieldOf(u.Head(0), "X-Forwarded-For"), peers.FieldOf(u.Head(1), "X-Forwarded-For"); a != "1.1.1.1, 127.0.0.1" || b != "127.0.0.1" {
		t.Errorf("X-Forwarded-For %q before and %q after", a, b)
	}
}
