package headers

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/route"
)

// refused sends the bytes on a fresh connection and checks all that a refusal
// has to be: the status, the reason told, an end of the connection, nothing
// at the upstream, and one count.
func refused(t *testing.T, change func(*proxy.Config), sent string, status int, why http1.Refusal, want policy.Outcome) {
	t.Helper()
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	var seen peers.Refusals
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		c.Refused = seen.Add
		if change != nil {
			change(c)
		}
	})
	c := p.Dial().Send(sent)
	res := c.Want(status, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != why.String() {
		t.Errorf("reason %q, want %q", got, why)
	}
	if !res.Close {
		t.Error("the response does not say Connection: close")
	}
	c.WantEnd("")
	p.WantOutcome(0, want)
	if n := len(p.Seen.Outcomes); n != 1 || p.Seen.Began != 1 || p.Seen.Codes[0] != status {
		t.Errorf("%d requests began, %d ended, codes %v; want one", p.Seen.Began, n, p.Seen.Codes)
	}
	if seen.List() != why.String() {
		t.Errorf("told %s, want %s once", seen.List(), why)
	}
	if u.Sends() != 0 {
		t.Errorf("%d sends, want none: %q", u.Sends(), u.Head(0))
	}
	// What follows a refused request is not read as another one.
	if p.Dial().Send(peers.Get("/")).Want(200, "ok"); u.Sends() != 1 {
		t.Errorf("%d sends after one good request", u.Sends())
	}
}

func TestRefusedRequestHeaders(t *testing.T) {
	ok := func(fields ...string) string {
		return peers.RequestText("POST / HTTP/1.1", append([]string{"Host: a"}, fields...)...)
	}
	line := func(line string) string { return peers.RequestText(line, "Host: a") }
	cases := []struct {
		name, sent string
		status     int
		why        http1.Refusal
	}{
		{"CL with TE", ok("Content-Length: 3", "Transfer-Encoding: chunked"), 400, http1.RefusalCLWithTE},
		{"TE with CL", ok("Transfer-Encoding: chunked", "Content-Length: 0"), 400, http1.RefusalCLWithTE},
		{"differing lengths", ok("Content-Length: 3", "Content-Length: 4"), 400, http1.RefusalDifferingContentLength},
		{"equal lengths but for a zero", ok("Content-Length: 5\r\nContent-Length: 05"), 400, http1.RefusalDifferingContentLength},
		{"length list", ok("Content-Length: 3, 3"), 400, http1.RefusalBadContentLength},
		{"length with sign", ok("Content-Length: +3"), 400, http1.RefusalBadContentLength},
		{"negative length", ok("Content-Length: -1"), 400, http1.RefusalBadContentLength},
		{"hexadecimal length", ok("Content-Length: 0x3"), 400, http1.RefusalBadContentLength},
		{"empty length", ok("Content-Length:"), 400, http1.RefusalBadContentLength},
		{"huge length", ok("Content-Length: 9223372036854775808"), 400, http1.RefusalBadContentLength},
		{"TE other than chunked", ok("Transfer-Encoding: gzip, chunked"), 501, http1.RefusalUnknownTransferEncoding},
		{"TE unknown", ok("Transfer-Encoding: cow"), 501, http1.RefusalUnknownTransferEncoding},
		{"TE without chunked", ok("Transfer-Encoding: gzip"), 400, http1.RefusalBadTransferEncoding},
		{"chunked not last", ok("Transfer-Encoding: chunked, gzip"), 400, http1.RefusalBadTransferEncoding},
		{"chunked twice", ok("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"), 400, http1.RefusalBadTransferEncoding},
		{"chunked with a parameter", ok("Transfer-Encoding: chunked;q=1"), 400, http1.RefusalBadTransferEncoding},
		{"hidden chunked", ok("Transfer-Encoding: x\x0bchunked"), 400, http1.RefusalControlByte},
		{"TE in HTTP/1.0", peers.RequestText("POST / HTTP/1.0", "Host: a", "Transfer-Encoding: chunked"), 400, http1.RefusalTransferEncodingIn10},
		{"length in disguise", ok("Content_Length: 3"), 400, http1.RefusalBadHeader},
		{"bare LF", "GET / HTTP/1.1\nHost: a\n\n", 400, http1.RefusalBareLF},
		{"bare LF after a field", "GET / HTTP/1.1\r\nHost: a\n\r\n", 400, http1.RefusalBareLF},
		{"bare CR", "GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400, http1.RefusalBareCR},
		{"obs-fold", ok("X: a\r\n b"), 400, http1.RefusalObsFold},
		{"obs-fold by tab", ok("X: a\r\n\tb"), 400, http1.RefusalObsFold},
		{"NUL", ok("X: a\x00b"), 400, http1.RefusalControlByte},
		{"control byte", ok("X: a\x01b"), 400, http1.RefusalControlByte},
		{"DEL", ok("X: a\x7fb"), 400, http1.RefusalControlByte},
		{"space before the colon", ok("X : a"), 400, http1.RefusalSpaceBeforeColon},
		{"no colon", ok("nonsense"), 400, http1.RefusalBadHeader},
		{"empty name", ok(": a"), 400, http1.RefusalBadHeader},
		{"name is no token", ok("a(b): c"), 400, http1.RefusalBadHeader},
		{"missing Host", peers.RequestText("GET / HTTP/1.1", "X: y"), 400, http1.RefusalMissingHost},
		{"duplicate Host", ok("Host: b"), 400, http1.RefusalDuplicateHost},
		{"malformed Host", peers.RequestText("GET / HTTP/1.1", "Host: a b"), 400, http1.RefusalBadHost},
		{"Host with user", peers.RequestText("GET / HTTP/1.1", "Host: u@a"), 400, http1.RefusalBadHost},
		{"Host with bad port", peers.RequestText("GET / HTTP/1.1", "Host: a:8x"), 400, http1.RefusalBadHost},
		{"fragment", line("GET /a#b HTTP/1.1"), 400, http1.RefusalBadTarget},
		{"byte above 0x7f in the target", line("GET /\xff HTTP/1.1"), 400, http1.RefusalBadTarget},
		{"space in the target", line("GET /a b HTTP/1.1"), 400, http1.RefusalBadRequestLine},
		{"target without slash", line("GET a HTTP/1.1"), 400, http1.RefusalBadTarget},
		{"two spaces", line("GET  / HTTP/1.1"), 400, http1.RefusalBadRequestLine},
		{"CONNECT", line("CONNECT a:443 HTTP/1.1"), 501, http1.RefusalConnect},
		{"* for GET", line("GET * HTTP/1.1"), 400, http1.RefusalBadTarget},
		{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, http1.RefusalBadVersion},
		{"HTTP/0.9", "GET /\r\n", 400, http1.RefusalBadRequestLine},
		{"lower case version", line("GET / http/1.1"), 400, http1.RefusalBadRequestLine},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, http1.RefusalTLSBytes},
		{"long method", line(strings.Repeat("A", 33) + " / HTTP/1.1"), 501, http1.RefusalMethodTooLong},
		{"other expectation", ok("Expect: 200-ok", "Content-Length: 1"), 417, http1.RefusalBadExpect},
		{"long target", line("GET /" + strings.Repeat("a", 64<<10) + " HTTP/1.1"), 414, http1.RefusalTargetTooLong},
		{"long head", ok("X: " + strings.Repeat("a", 64<<10)), 431, http1.RefusalHeadersTooLarge},
		{"many fields", ok(strings.Split(strings.Repeat("X: y\n", 100), "\n")[:100]...), 431, http1.RefusalTooManyHeaders},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			refused(t, nil, tc.sent, tc.status, tc.why, policy.OutcomeRefused)
			refused(t, nil, tc.sent+peers.Get("/smuggled"), tc.status, tc.why, policy.OutcomeRefused)
		})
	}
}

func TestTheLimitsOfHeadersAreExact(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	headers := peers.RequestText("GET / HTTP/1.1", "Host: a", "X: ")
	c := p.Dial().Send(peers.RequestText("GET / HTTP/1.1", "Host: a", "X: "+strings.Repeat("a", 64<<10-len(headers)))) // 64 KiB to the byte
	c.Want(200, "ok")
	c.Send(peers.RequestText("GET / HTTP/1.1", append([]string{"Host: a"}, strings.Split(strings.Repeat("X: y\n", 99), "\n")[:99]...)...)).Want(200, "ok")
	if n := strings.Count(u.Head(1), "X: y\r\n"); n != 99 {
		t.Errorf("%d of 99 fields arrived", n)
	}
}

// A refusal ends the connection also after good requests on it.
func TestARefusedRequestAfterAGoodOne(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	c := p.Dial().Send(peers.Get("/") + "GET /\n\n" + peers.Get("/smuggled"))
	c.Want(200, "ok")
	c.Want(400, "*")
	c.WantEnd("")
	p.WantOutcome(1, policy.OutcomeRefused)
	if u.Sends() != 1 {
		t.Errorf("%d sends, want 1", u.Sends())
	}
}

func TestRefusedBodiesThatCameWithTheirHeaders(t *testing.T) {
	chunked := peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked")
	for name, tc := range map[string]struct {
		body   string
		status int
		why    http1.Refusal
	}{
		"no size":             {"\r\nhello\r\n0\r\n\r\n", 400, http1.RefusalBadChunk},
		"size with sign":      {"+5\r\nhello\r\n0\r\n\r\n", 400, http1.RefusalBadChunk},
		"size with prefix":    {"0x5\r\nhello\r\n0\r\n\r\n", 400, http1.RefusalBadChunk},
		"space after size":    {"5 \r\nhello\r\n0\r\n\r\n", 400, http1.RefusalBadChunk},
		"size too large":      {"fffffffffffffffff\r\n", 400, http1.RefusalChunkTooLarge},
		"size overflows":      {"8000000000000000\r\nhello", 400, http1.RefusalChunkTooLarge},
		"bare LF":             {"5\nhello\r\n0\r\n\r\n", 400, http1.RefusalBareLF},
		"long extension":      {"5;" + strings.Repeat("x", 2000) + "\r\nhello\r\n0\r\n\r\n", 400, http1.RefusalChunkExtensions},
		"control byte in one": {"5;a\x00\r\nhello\r\n0\r\n\r\n", 400, http1.RefusalControlByte},
		"bad trailer":         {"0\r\nno colon\r\n\r\n", 400, http1.RefusalBadTrailer},
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, nil, chunked+tc.body, tc.status, tc.why, policy.OutcomeRequestBroken)
		})
	}
}

// A body turns out to be malformed after its beginning was sent: the upstream's connection is
// reset, so that the beginning does not pass for the whole body.
func TestBodiesThatTurnOutMalformedAreAborted(t *testing.T) {
	for name, tc := range map[string]struct {
		body   string
		status int
		why    http1.Refusal
	}{
		"size":                {"zz\r\n", 400, http1.RefusalBadChunk},
		"data without an end": {"5\r\nhelloworld\r\n0\r\n\r\n", 400, http1.RefusalBadChunk},
		"dribbled extensions": {strings.Repeat("1;"+strings.Repeat("x", 900)+"\r\ny\r\n", 20), 400, http1.RefusalChunkExtensions},
		"huge trailers":       {"0\r\n" + strings.Repeat("X: "+strings.Repeat("y", 1000)+"\r\n", 70) + "\r\n", 431, http1.RefusalTrailersTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			end := make(chan error, 1)
			begun := make(chan struct{})
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				c.Head()
				c.Body(8) // 3 CRLF abc CRLF
				close(begun)
				_, err := c.EndOfInput()
				end <- err
			})
			var seen peers.Refusals
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Refused = seen.Add })
			c := p.Dial().Send(peers.RequestText("PUT / HTTP/1.1", "Host: a", "Transfer-Encoding: chunked") + "3\r\nabc\r\n")
			peers.Within(t, "the begin of the body upstream", begun)
			c.Send(tc.body)
			c.Want(tc.status, "*")
			_, _ = c.Rest()
			if err := peers.Within(t, "the end upstream", end); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the upstream's connection ended with %v, want a reset", err)
			}
			p.WantOutcome(0, policy.OutcomeRequestBroken)
			if seen.List() != tc.why.String() {
				t.Errorf("told %s, want %s once", seen.List(), tc.why)
			}
		})
	}
}

func TestPathsThatCouldChangeTheRouteAreRefused(t *testing.T) {
	routed := func(c *proxy.Config) {
		admin := c.Default
		admin.Name, admin.Match = "admin", route.Match{Path: "/admin/*"}
		c.Routes = []proxy.Route{admin}
	}
	stripped := func(c *proxy.Config) {
		c.Default.Forward = forward.Settings{Host: forward.HostRule{Mode: forward.HostPreserve}, StripPrefix: "/api"}
	}
	for _, path := range []string{"/x/../admin/y", "//admin/y", "/x/%2e%2e/admin/y", "/%61dmin%2fy", "/admin%2fy", `/x\..\admin\y`, "/admin;a=b/y", "/./admin/y"} {
		t.Run(path, func(t *testing.T) {
			refused(t, routed, peers.Get(path), 400, http1.RefusalAmbiguousPath, policy.OutcomeRefused)
		})
	}
	refused(t, stripped, peers.Get("/api/../secret"), 400, http1.RefusalAmbiguousPath, policy.OutcomeRefused)

	below := func(c *proxy.Config) { c.Default.Forward.BasePath = "/v2" }
	fallback := func(c *proxy.Config) {
		c.Default.Fallbacks = []proxy.Fallback{{Status: 503, Forward: forward.Settings{BasePath: "/v2"}}}
	}
	for _, path := range []string{"/../secret", "/a/../../secret", "/%2e%2e/secret", "/.%2E/secret", `/..\secret`, "/..;x/secret", "/a%2f../secret", "/..", "/%c0%ae./secret"} {
		refused(t, below, peers.Get(path), 400, http1.RefusalAmbiguousPath, policy.OutcomeRefused)
		refused(t, fallback, peers.Get(path), 400, http1.RefusalAmbiguousPath, policy.OutcomeRefused)
	}

	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	p := proxytest.Start(t, u, nil)
	c := p.Dial()
	for i, path := range []string{"/a//b", "/a/../b", "/%2e%2e/c", "/a;b=c"} { // one route: nothing to confuse
		c.Send(peers.Get(path)).Want(200, "ok")
		if !strings.HasPrefix(u.Head(i), "GET "+path+" HTTP/1.1\r\n") {
			t.Errorf("%s became %q", path, u.Head(i))
		}
	}
}

func TestMalformedResponsesAreNeverRelayed(t *testing.T) {
	for name, response := range map[string]string{
		"not HTTP":               "SSH-2.0-OpenSSH\r\n",
		"HTTP/2":                 "HTTP/2.0 200 OK\r\n\r\n",
		"bad code":               "HTTP/1.1 2x0 OK\r\n\r\n",
		"code 99":                "HTTP/1.1 099 OK\r\n\r\n",
		"CRLF and bare LF":       "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n",
		"obs-fold":               "HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"NUL":                    "HTTP/1.1 200 OK\r\nX: a\x00\r\nContent-Length: 0\r\n\r\n",
		"space before the colon": "HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n",
		"CL with TE":             "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"differing lengths":      "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"malformed length":       "HTTP/1.1 200 OK\r\nContent-Length: 3x\r\n\r\nabc",
		"unknown coding":         "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"TE in HTTP/1.0":         "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"100 with a body":        "HTTP/1.1 100 Continue\r\nContent-Length: 3\r\n\r\nabc" + peers.OK200,
		"headers too large":      "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 64<<10) + "\r\nContent-Length: 0\r\n\r\n",
		"too many headers":       "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 101) + "Content-Length: 0\r\n\r\n",
	} {
		reason, text := "malformed", "the upstream sent a response that is not valid HTTP"
		if strings.HasSuffix(name, "too large") || strings.HasPrefix(name, "too many") {
			reason, text = "response_headers_too_large", "the upstream sent response headers that are larger than the limit"
		}
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, func(c *peers.Conn) {
				if headers := c.Head(); headers != "" {
					peers.DiscardBody(c, headers)
					c.Say("%s", response)
					_, _ = c.EndOfInput()
				}
			})
			p := proxytest.Start(t, u, nil)
			c := p.Dial()
			res := c.Send(peers.Get("/")).Want(502, "*") // idempotent: repeated, each on a new connection
			if res.Close || res.Header.Get("X") != "" || u.Sends() != 4 || u.Connections() != 4 {
				t.Errorf("close %v, %d sends over %d connections, want 4 over 4", res.Close, u.Sends(), u.Connections())
			}
			if res, body, err := c.Send(peers.Post("x")).Response("POST"); err != nil || res.StatusCode != 502 || !strings.Contains(body, text) { // not retried
				t.Errorf("%v, %q, %v", res, body, err)
			}
			if u.Sends() != 5 {
				t.Errorf("%d sends, want 4 and 1", u.Sends())
			}
			p.WantOutcome(0, policy.GaveUp(policy.ReasonRetriesExhausted))
			p.WantOutcome(1, policy.GaveUp(policy.ReasonNotIdempotent))
			if got := fmt.Sprint(p.Seen.Classes, p.Seen.Retries); got != fmt.Sprintf("[unknown unknown unknown unknown unknown] [%[1]s %[1]s %[1]s]", reason) {
				t.Errorf("classes and reasons %s", got)
			}
		})
	}
}

func TestAMalformedResponseIsRecoveredByARetry(t *testing.T) {
	u := peers.StartUpstream(t, func(c *peers.Conn) {
		c.Head()
		if c.N == 1 {
			c.Say("garbage\r\n\r\n")
			return
		}
		c.Say(peers.OK200)
	})
	p := proxytest.Start(t, u, nil)
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	p.WantOutcome(0, policy.OutcomeRecovered)
}
