package retry

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// layers puts n proxies one behind the other in front of u and gives the outermost.
func layers(t *testing.T, n int, u *peers.Upstream, change func(c *proxy.Config)) *proxytest.Proxy {
	t.Helper()
	url := "http://" + u.Addr().String()
	var p *proxytest.Proxy
	for range n {
		p = proxytest.StartTo(t, url, change)
		url = "http://" + p.Addr
	}
	return p
}

func TestLayersDoNotMultiply(t *testing.T) {
	for name, dead := range map[string]func(c *peers.Conn){
		"answers 503": peers.Script(peers.Bad503),
		"resets":      peers.Script(""),
		"hangs up":    func(c *peers.Conn) { c.Head() },
	} {
		t.Run(name, func(t *testing.T) {
			sends := func(n int) int {
				u := peers.StartUpstream(t, dead)
				p := layers(t, n, u, nil)
				res, _, err := p.Dial().Send(peers.Get("/")).Response("GET")
				if err != nil || res.StatusCode < 500 {
					t.Fatalf("%v %v", res, err)
				}
				if n := len(res.Header.Values("X-Retryproxy-Reason")); n != 1 {
					t.Errorf("%d X-Retryproxy-Reason fields, want 1", n)
				}
				return u.Sends()
			}
			one, three := sends(1), sends(3)
			if one != 4 || float64(three) > 1.3*float64(one) {
				t.Errorf("%d sends through three layers, %d through one", three, one)
			}
		})
	}
}

func TestLayersOverADeadPortDoNotMultiply(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.OK200))
	u.Close()
	p := layers(t, 3, u, nil)
	res := p.Dial().Send(peers.Get("/")).Want(502, "*")
	if got := res.Header.Get("X-Retryproxy-Reason"); got != "upstream_gave_up" && got != "retries_exhausted" {
		t.Errorf("reason %q", got)
	}
	if n := p.Seen.Outcome(t, 0); n != policy.GaveUp(policy.ReasonUpstreamGaveUp) {
		t.Errorf("outcome of the outermost %v", n)
	}
}

func TestALayeredRetryIsLimitedBySetting(t *testing.T) {
	cases := []struct {
		field  string
		nested policy.LayeredRetries
		sends  int
	}{
		{"X-Retryproxy-Attempt: 2", policy.LayeredHalve, 2},
		{"X-Retryproxy-Attempt: 2", policy.LayeredAllow, 4},
		{"X-Retryproxy-Attempt: 2", policy.LayeredDeny, 1},
		{"X-Retryproxy-Attempt: 1", policy.LayeredDeny, 4},
		{"X-Envoy-Attempt-Count: 3", policy.LayeredHalve, 2},
		{"X-Envoy-Attempt-Count: 1", policy.LayeredHalve, 4},
		{"Grpc-Previous-Rpc-Attempts: 1", policy.LayeredDeny, 1},
		{"X-Stainless-Retry-Count: 0", policy.LayeredHalve, 4},
		{"X-Stainless-Retry-Count: 1", policy.LayeredHalve, 2},
		{"x-stainless-retry-count: 2", policy.LayeredDeny, 1},
		{"X-Retryproxy-Attempt: nonsense", policy.LayeredDeny, 4},
	}
	for _, tc := range cases {
		t.Run(fmt.Sprint(tc.field, " ", tc.nested), func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(peers.Bad503))
			p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.LayeredRetries = tc.nested })
			p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\n"+tc.field+"\r\n\r\n").Want(503, "busy")
			if u.Sends() != tc.sends {
				t.Errorf("%d sends, want %d", u.Sends(), tc.sends)
			}
		})
	}
}

func TestTheThirdProxySeesTheRetriesOfTheFirst(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := layers(t, 2, u, nil)
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\nX-Retryproxy-Attempt: 3\r\n\r\n").Want(200, "ok")
	if got := peers.FieldOf(u.Head(0), "X-Retryproxy-Attempt"); got != "3" {
		t.Errorf("the first send says attempt %q, want 3", got)
	}
	if got := peers.FieldOf(u.Head(1), "X-Retryproxy-Attempt"); got != "4" {
		t.Errorf("the retry says attempt %q, want 4", got)
	}
}

func TestTheInnerProxysReasonIsKeptInsteadOfUpstreamGaveUp(t *testing.T) {
	marked := "HTTP/1.1 503 No\r\nX-Retryproxy-Reason: budget_exhausted\r\nContent-Length: 4\r\n\r\nbusy"
	u := peers.StartUpstream(t, peers.Script(marked))
	p := proxytest.Start(t, u, nil)
	res := p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if got := res.Header.Values("X-Retryproxy-Reason"); len(got) != 1 || got[0] != "budget_exhausted" {
		t.Errorf("reasons %q, want the inner one", got)
	}
	if u.Sends() != 1 {
		t.Errorf("%d sends, want 1: the inner proxy's answer is final", u.Sends())
	}
}

func TestAProxyInFrontLearnsThatWeGaveUp(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503))
	p := layers(t, 3, u, peers.AddNothingToResponses)
	p.Dial().Send(peers.Get("/")).Want(503, "busy")
	if u.Sends() != 4 {
		t.Errorf("%d sends, want 4", u.Sends())
	}
}

func TestEveryAttemptCarriesItsNumber(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, nil)
	p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\nX-Retryproxy-Attempt: 1\r\n\r\n").Want(200, "ok")
	for i := range 3 {
		want := fmt.Sprintf("X-Retryproxy-Attempt: %d\r\n", i+1)
		if h := u.Head(i); strings.Count(h, "X-Retryproxy-Attempt:") != 1 || !strings.Contains(h, want) {
			t.Errorf("attempt %d: %q", i+1, h)
		}
	}
}

func TestAGeneratedKeyStaysTheSameOverAllAttempts(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) { c.Default.GenerateKey = true })
	c := p.Dial()
	c.Send(peers.Post("x")).Want(200, "ok")
	first, second := peers.FieldOf(u.Head(0), "Idempotency-Key"), peers.FieldOf(u.Head(1), "Idempotency-Key")
	if first == "" || first != second {
		t.Errorf("keys %q and %q, want one and the same", first, second)
	}
	c.Send(peers.Post("x")).Want(200, "ok")
	if third := peers.FieldOf(u.Head(2), "Idempotency-Key"); third == first || third == "" {
		t.Errorf("the next request has key %q, want another", third)
	}
	c.Send("POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: mine\r\nContent-Length: 0\r\n\r\n").Want(200, "ok")
	if got := peers.FieldOf(u.Head(3), "Idempotency-Key"); got != "mine" {
		t.Errorf("the client's key became %q", got)
	}
}

func TestAKeyMakesAPostRetriable(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503, peers.OK200))
	p := proxytest.Start(t, u, nil)
	p.Dial().Send("POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 1\r\n\r\nx").Want(200, "ok")
	if u.Sends() != 2 {
		t.Errorf("%d sends, want 2", u.Sends())
	}
}

func TestRetriableHeader(t *testing.T) {
	again := "HTTP/1.1 200 OK\r\nX-Again: yes\r\nContent-Length: 5\r\n\r\nagain"
	u := peers.StartUpstream(t, peers.Script(again, again, peers.OK200))
	p := proxytest.Start(t, u, func(c *proxy.Config) {
		on, err := policy.ParseRetryOn("retriable-header:X-Again=yes")
		if err != nil {
			t.Fatal(err)
		}
		c.Default.Policy.RetryOn = on
	})
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	if u.Sends() != 3 {
		t.Errorf("%d sends, want 3", u.Sends())
	}
	if got := p.Seen.Retries; len(got) != 2 || got[0] != policy.ReasonHeader {
		t.Errorf("retries for %v", got)
	}
}

func TestResponseHeadersCanBeSwitchedOff(t *testing.T) {
	u := peers.StartUpstream(t, peers.Script(peers.Bad503))
	p := proxytest.Start(t, u, peers.AddNothingToResponses)
	res := p.Dial().Send(peers.Get("/")).Want(503, "busy")
	for name := range res.Header {
		if strings.HasPrefix(name, "X-Retryproxy") {
			t.Errorf("the response has %s", name)
		}
	}
}

// If TRUSTED_PROXIES is set, X-Retryproxy-* headers of all other peers are neither trusted nor
// forwarded.
func TestControlHeadersOfUntrustedPeersAreDropped(t *testing.T) {
	for name, tc := range map[string]struct {
		trusted string
		sends   int
		attempt string // that the upstream is told first
		reason  bool   // the client is told as a retryproxy is
	}{
		"of a stranger":       {"192.0.2.0/24", 4, "X-Retryproxy-Attempt: 1\r\n", false},
		"of a trusted proxy":  {"127.0.0.0/8", 1, "X-Retryproxy-Attempt: 7\r\n", true},
		"with nobody trusted": {"", 1, "X-Retryproxy-Attempt: 7\r\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			u := peers.StartUpstream(t, peers.Script(peers.Bad503))
			p := proxytest.Start(t, u, func(c *proxy.Config) {
				peers.AddNothingToResponses(c)
				c.Default.LayeredRetries = policy.LayeredDeny
				if tc.trusted != "" {
					c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix(tc.trusted)}
				}
			})
			res := p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\nX-Retryproxy-Attempt: 7\r\nX-Retryproxy-Other: x\r\n\r\n").Want(503, "*")
			if u.Sends() != tc.sends || !strings.Contains(u.Head(0), tc.attempt) {
				t.Errorf("%d sends, the first was %q", u.Sends(), u.Head(0))
			}
			if sentOn := strings.Contains(u.Head(0), "X-Retryproxy-Other"); sentOn != tc.reason {
				t.Errorf("sent on: %v", sentOn)
			}
			if told := res.Header.Get("X-Retryproxy-Reason") != ""; told != tc.reason {
				t.Errorf("told as a retryproxy: %v", told)
			}
		})
	}
}

// A client that retries by itself learns when no retry can succeed, and only then.
func TestAClientLearnsThatARetryIsInVain(t *testing.T) {
	fallback := func(c *proxy.Config) {
		target, _ := upstream.ParseTarget("http://" + peers.ReservePort(t).Addr)
		c.Default.Fallbacks = []proxy.Fallback{{Upstream: target}}
	}
	longPause := func(c *proxy.Config) { c.Default.RateLimitPause.Max = time.Hour }
	const minute = `{"error":{"message":"Please try again in 45s"}}`
	for name, tc := range map[string]struct {
		response string
		set      func(*proxy.Config)
		want     []string // X-Should-Retry
	}{
		"all attempts were made":               {peers.Bad503, nil, nil},
		"the upstream wanted one":              {peers.RawResponse(503, "X-Should-Retry: true"), nil, []string{"true"}},
		"the account is used up":               {peers.ResponseWithBody(429, `{"code":"insufficient_quota"}`, peers.AsJSON), nil, []string{"false"}},
		"it is, but there is a fallback":       {peers.ResponseWithBody(429, `{"code":"insufficient_quota"}`, peers.AsJSON), fallback, nil},
		"the wait is too long":                 {peers.RawResponse(429, "Retry-After: 3600"), nil, []string{"false"}},
		"it is just too long for a client":     {peers.RawResponse(429, "Retry-After: 61"), nil, []string{"false"}},
		"a client waits as long":               {peers.RawResponse(429, "Retry-After: 60"), nil, nil},
		"it is too long only for us":           {peers.RawResponse(429, "Retry-After: 45"), longPause, nil},
		"in milliseconds":                      {peers.RawResponse(429, "Retry-After-Ms: 45000"), longPause, nil},
		"in milliseconds, for long":            {peers.RawResponse(429, "Retry-After-Ms: 99999999999999"), nil, []string{"false"}},
		"as a date":                            {peers.RawResponse(429, "Date: Thu, 01 Jan 2026 00:00:00 GMT", "Retry-After: Thu, 01 Jan 2026 00:00:45 GMT"), nil, nil},
		"only a body says it":                  {peers.ResponseWithBody(429, minute, peers.AsJSON), nil, []string{"false"}},
		"a body asks for more than a header":   {peers.ResponseWithBody(429, minute, peers.AsJSON, "Retry-After: 1"), nil, []string{"false"}},
		"a body and a header ask for the same": {peers.ResponseWithBody(429, minute, peers.AsJSON, "Retry-After: 45"), nil, nil},
		"the upstream asked for none":          {peers.RawResponse(503, "x-should-retry: false"), nil, []string{"false"}},
		"an inner proxy gave up":               {peers.RawResponse(503, "X-Retryproxy-Reason: deadline"), nil, nil},
		"no retries for a retry":               {peers.Bad503, func(c *proxy.Config) { c.Default.LayeredRetries = policy.LayeredDeny }, nil},
		"retries are off":                      {peers.Bad503, func(c *proxy.Config) { c.Default.Policy.MaxRetries = 0 }, nil},
		"a success":                            {peers.OK200, nil, nil},
		"a success that says it":               {"HTTP/1.1 200 OK\r\nX-Should-Retry: true\r\nContent-Length: 0\r\n\r\n", nil, []string{"true"}},
		"no headers of ours":                   {peers.RawResponse(429, "Retry-After: 3600"), peers.AddNothingToResponses, nil},
		"a dry run changes no headers":         {peers.Bad503, func(c *proxy.Config) { c.Default.DryRun = true }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(tc.response)), tc.set)
			res, _, err := p.Dial().Send("GET / HTTP/1.1\r\nHost: a\r\nX-Stainless-Retry-Count: 1\r\n\r\n").Response("GET")
			if err != nil || !slices.Equal(res.Header.Values("X-Should-Retry"), tc.want) {
				t.Errorf("%v %v, want %q", res, err, tc.want)
			}
		})
	}
	u := peers.StartUpstream(t, func(c *peers.Conn) { c.Head(); c.Reset() })
	for request, want := range map[string]string{peers.Get("/"): "", peers.PostABC: "false"} {
		res, _, err := proxytest.Start(t, u, nil).Dial().Send(request).Response("GET")
		if err != nil || res.StatusCode != 502 || res.Header.Get("X-Should-Retry") != want {
			t.Errorf("a response of ours: %v %v, want %q", res, err, want)
		}
	}
}

// A vendor's client repeats a request whose good response is cut off in its body. If the request
// must not be sent twice, the headers of that response forbid it.
func TestAVendorsClientLearnsNotToRepeatAGoodResponse(t *testing.T) {
	const vendor = "X-Stainless-Retry-Count: 0"
	with := func(method string, headers ...string) string {
		return method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n" + strings.Join(append(headers, ""), "\r\n") + "\r\nabc"
	}
	for name, tc := range map[string]struct {
		request, response string
		want              []string // X-Should-Retry
	}{
		"a POST":                    {with("POST", vendor), peers.OK200, []string{"false"}},
		"of another client":         {with("POST"), peers.OK200, nil},
		"with an Idempotency-Key":   {with("POST", vendor, "Idempotency-Key: 1"), peers.OK200, nil},
		"a PUT":                     {with("PUT", vendor), peers.OK200, nil},
		"the upstream wants one":    {with("POST", vendor), peers.RawResponse(200, "X-Should-Retry: true"), []string{"true"}},
		"an error that is no retry": {with("POST", vendor), peers.RawResponse(400), nil},
	} {
		t.Run(name, func(t *testing.T) {
			res, _, err := proxytest.Start(t, peers.StartUpstream(t, peers.Script(tc.response)), nil).Dial().Send(tc.request).Response("POST")
			if err != nil || !slices.Equal(res.Header.Values("X-Should-Retry"), tc.want) {
				t.Errorf("%v %v, want %q", res, err, tc.want)
			}
		})
	}
}

// The client must not repeat a request that may have been processed either, unless the upstream
// asks for it.
func TestAClientLearnsThatARetryMayActTwice(t *testing.T) {
	for response, want := range map[string]string{peers.Bad503: "false", peers.RawResponse(503, "X-Should-Retry: true"): "true"} {
		p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(response)), nil)
		res, _, err := p.Dial().Send(peers.PostABC).Response("POST")
		if err != nil || !slices.Equal(res.Header.Values("X-Should-Retry"), []string{want}) {
			t.Errorf("%v %v, want %q", res, err, want)
		}
	}
}
