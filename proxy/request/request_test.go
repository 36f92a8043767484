package request_test

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/wire"
)

func TestWhichRequestsMayRunTwice(t *testing.T) {
	generates := func(c *settings.Config) { c.Default.GenerateKey = true }
	for _, tc := range []struct {
		method string
		lines  []string
		change func(c *settings.Config)
		safe   bool
		key    bool // one is made
	}{
		{"GET", nil, nil, true, false}, {"PUT", nil, nil, true, false}, {"DELETE", nil, nil, true, false},
		{"POST", nil, nil, false, false}, {"PATCH", nil, nil, false, false}, {"ODD", nil, nil, false, false},
		{"POST", []string{"Idempotency-Key: k"}, nil, true, false},
		{"POST", nil, generates, true, true},
		{"POST", []string{"Idempotency-Key: k"}, generates, true, false},
		{"POST", nil, func(c *settings.Config) { generates(c); c.Default.DryRun = true }, true, false},
	} {
		c := begin(t, message(tc.method, "/a", tc.lines...), tc.change)
		if c.IsSafe() != tc.safe || (c.Out.GeneratedKey != nil) != tc.key {
			t.Errorf("%s %v: safe %v, key %q", tc.method, tc.lines, c.IsSafe(), c.Out.GeneratedKey)
		}
	}
}

// A request that was sent before gets fewer retries: proxies in a row would multiply them.
func TestARequestThatIsARetryGetsFewer(t *testing.T) {
	layered := func(l policy.LayeredRetries) func(c *settings.Config) {
		return func(c *settings.Config) { c.Default.LayeredRetries = l }
	}
	strangers := func(c *settings.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }
	for name, tc := range map[string]struct {
		header  string
		change  func(c *settings.Config)
		retries int
		earlier int
		layered bool
	}{
		"a first attempt":                 {"X-Other: 1", nil, 3, 0, false},
		"the first of a proxy":            {"X-Retryproxy-Attempt: 1", nil, 3, 0, false},
		"the second of a proxy":           {"X-Retryproxy-Attempt: 2", nil, 1, 1, false},
		"the fifth":                       {"X-Retryproxy-Attempt: 5", nil, 1, 4, false},
		"a large number":                  {"X-Retryproxy-Attempt: 99999", nil, 1, 100, false},
		"zero":                            {"X-Retryproxy-Attempt: 0", nil, 3, 0, false},
		"no number":                       {"X-Retryproxy-Attempt: -2", nil, 3, 0, false},
		"of a stranger":                   {"X-Retryproxy-Attempt: 5", strangers, 3, 0, false},
		"Envoy's first":                   {"X-Envoy-Attempt-Count: 1", nil, 3, 0, false},
		"Envoy's second":                  {"X-Envoy-Attempt-Count: 2", nil, 1, 0, false},
		"Envoy's second, of a stranger":   {"X-Envoy-Attempt-Count: 2", strangers, 1, 0, false},
		"gRPC's first retry":              {"Grpc-Previous-Rpc-Attempts: 1", nil, 1, 0, false},
		"gRPC's first attempt":            {"Grpc-Previous-Rpc-Attempts: 0", nil, 3, 0, false},
		"a vendor's retry":                {"X-Stainless-Retry-Count: 1", nil, 1, 0, false},
		"a vendor's first attempt":        {"X-Stainless-Retry-Count: 0", nil, 3, 0, false},
		"as many as any other":            {"X-Retryproxy-Attempt: 2", layered(policy.LayeredAllow), 3, 1, false},
		"none":                            {"X-Retryproxy-Attempt: 2", layered(policy.LayeredDeny), 0, 1, true},
		"half of one":                     {"X-Retryproxy-Attempt: 2", func(c *settings.Config) { c.Default.Policy.MaxRetries = 1 }, 0, 1, true},
		"none, but it is a first attempt": {"X-Retryproxy-Attempt: 1", layered(policy.LayeredDeny), 3, 0, false},
	} {
		c := requesttest.Begin(t, get(tc.header), tc.change)
		c.From("192.0.2.1")
		c.Prepare()
		if s := c.Situation(); s.MaxRetries != tc.retries || s.Layered != tc.layered {
			t.Errorf("%s: %d retries, layered %v", name, s.MaxRetries, s.Layered)
		}
		wantLines(t, headersOf(c, 2, nil), "X-Retryproxy-Attempt", fmt.Sprintf("x-retryproxy-attempt: %d", tc.earlier+2))
	}
}

// Nothing of a request is in the next one of its connection.
func TestTheNextRequestBeginsAnew(t *testing.T) {
	c := begin(t, message("PUT", "/a", "X-Retryproxy-Attempt: 9", "Expect: 100-continue", "X-Request-Timeout: 1", "X-Request-Id: mine", "Content-Length: 5"), func(c *settings.Config) {
		c.Default.LayeredRetries = policy.LayeredDeny
		c.Default.GenerateKey = true
	})
	c.BeginAttempt()
	c.BeginRetry()
	c.ClientFailed(request.ErrBodyCut)
	c.Next(message("POST", "/b"))
	if s := c.Situation(); c.Attempts() != 0 || s.Retries != 0 || s.MaxRetries != 0 || s.Layered || s.Safe || c.ExpectsContinue() || c.Out.ID != nil || c.Out.GeneratedKey != nil {
		t.Errorf("%+v", c.Request)
	}
	wantLines(t, headersOf(c, 2, nil), "X-Retryproxy-Attempt", "x-retryproxy-attempt: 2")
	if !c.ClientStaysOn() || !c.Time.ClientLeavesAt.IsZero() || !c.Time.Deadline.IsZero() {
		t.Errorf("its client stays on: %v, leaves at %v", c.ClientStaysOn(), c.Time.ClientLeavesAt)
	}
	if c.Time.Began != c.Time.Clock || c.Time.Began.IsZero() {
		t.Error("its time began earlier")
	}
}

func TestWhyTheClientsSideEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		err     error
		end     int32
		refusal http1.Refusal
	}{
		"a rule":         {fmt.Errorf("body: %w", http1.RefusalBadChunk.Err()), request.ClientBodyBroken, http1.RefusalBadChunk},
		"cut off":        {request.ErrBodyCut, request.ClientBodyBroken, http1.RefusalNone},
		"too slow":       {request.ErrBodyTooSlow, request.ClientTooSlow, http1.RefusalNone},
		"lost its slot":  {request.ErrTurnedAway, request.ClientTurnedAway, http1.RefusalNone},
		"anything else":  {io.ErrClosedPipe, request.ClientGone, http1.RefusalNone},
		"wrapped by who": {fmt.Errorf("sending: %w", request.ErrBodyTooSlow), request.ClientTooSlow, http1.RefusalNone},
	} {
		c := begin(t, get(), nil)
		c.ClientFailed(http1.RefusalBadTrailer.Err())
		c.ClientFailed(tc.err)
		if c.ClientEnd() != tc.end || c.BodyRefusal() != tc.refusal || c.ClientStaysOn() {
			t.Errorf("%s: %d, %v", name, c.ClientEnd(), c.BodyRefusal())
		}
	}
	c := begin(t, get(), nil)
	if c.ClientEnd() != request.ClientPresent || !c.ClientStaysOn() {
		t.Error("it ended before")
	}
	c.ClientLeft()
	if c.ClientEnd() != request.ClientGone || c.ClientStaysOn() {
		t.Error("it stays on")
	}
}

// A client that waits for a 100 gets it once.
func TestAClientIsToldToContinueOnce(t *testing.T) {
	const expects = "Expect: 100-continue"
	for name, tc := range map[string]struct {
		text string
		want bool
	}{
		"a body that is to come":  {message("PUT", "/a", expects, "Content-Length: 5"), true},
		"chunks":                  {message("PUT", "/a", expects, "Transfer-Encoding: chunked"), true},
		"no body":                 {message("PUT", "/a", expects), false},
		"an empty body":           {message("PUT", "/a", expects, "Content-Length: 0"), false},
		"no expectation":          {message("PUT", "/a", "Content-Length: 5"), false},
		"one that the route sent": {message("PUT", "/a", "Content-Length: 5"), false},
	} {
		c := begin(t, tc.text, nil)
		if c.ExpectsContinue() != tc.want {
			t.Errorf("%s: expects %v", name, c.ExpectsContinue())
		}
		c.ContinueClient()
		c.ContinueClient()
		want := ""
		if tc.want {
			want = "HTTP/1.1 100 Continue\r\n\r\n"
		}
		if got := c.Wire.String(); got != want || c.ExpectsContinue() || !c.ClientStaysOn() {
			t.Errorf("%s: %q", name, got)
		}
	}
	c := begin(t, message("PUT", "/a", expects, "Content-Length: 5"), nil)
	c.Continued() // the upstream's was forwarded
	c.ContinueClient()
	if c.Wire.String() != "" {
		t.Error("a second 100")
	}
	c = begin(t, message("PUT", "/a", expects, "Content-Length: 5"), nil)
	c.Wire.Leave()
	c.ContinueClient()
	if c.ClientEnd() != request.ClientGone {
		t.Error("nobody noticed that the client left")
	}
	c = begin(t, message("PUT", "/a", expects, "Content-Length: 5"), nil)
	send(c, "hello")
	c.FinishBody(0)
	if !strings.HasPrefix(c.Wire.String(), "HTTP/1.1 100 ") {
		t.Errorf("read without asking: %q", c.Wire.String())
	}
}

func TestWhichRequestsAreHedged(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		grpc bool
		want bool
	}{
		"a read":         {get(), false, true},
		"a write":        {message("POST", "/a"), false, false},
		"one with a key": {message("POST", "/a", "Idempotency-Key: k"), false, true},
		"a gRPC call":    {get(), true, false},
		"an upgrade":     {get("Connection: upgrade", "Upgrade: x"), false, false},
		"a stream":       {get("Accept: text/event-stream"), false, false},
		"perhaps one":    {get("Accept: application/json, text/event-stream"), false, false},
		"another accept": {get("Accept: text/html"), false, true},
	} {
		c := begin(t, tc.text, nil)
		c.GRPC = tc.grpc
		if got := c.Hedgeable(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Our headers for another retryproxy are not for whoever says so.
func TestWhichClientsAreAProxyOfOurs(t *testing.T) {
	trusts := func(c *settings.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }
	for _, tc := range []struct {
		header, from string
		change       func(c *settings.Config)
		want         bool
	}{
		{"X-Retryproxy-Attempt: 1", "192.0.2.1", nil, true},
		{"X-Retryproxy-Attempt: 1", "192.0.2.1", trusts, false},
		{"X-Retryproxy-Attempt: 1", "10.0.0.1", trusts, true},
		{"X-Other: 1", "10.0.0.1", trusts, false},
	} {
		c := requesttest.Begin(t, get(tc.header), tc.change)
		c.From(tc.from)
		if got := c.ClientIsProxy(); got != tc.want {
			t.Errorf("%s from %s: %v", tc.header, tc.from, got)
		}
	}
}

func TestWhichRequestsAreRefused(t *testing.T) {
	strip := func(c *settings.Config) { c.Default.Forward.StripPrefix = "/api" }
	forwards := func(c *settings.Config) { c.ForwardProxy = true }
	base := func(c *settings.Config) { c.Default.Forward.BasePath = "/v2" }
	paths := func(c *settings.Config) {
		r := c.Default
		r.Name, r.Match = "secret", route.Match{Path: "/secret/*"}
		c.Routes = []settings.Route{r}
	}
	for _, tc := range []struct {
		target string
		change func(c *settings.Config)
		want   http1.Refusal
	}{
		{"/a/../b", nil, http1.RefusalNone},
		{"/a", strip, http1.RefusalNone},
		{"/api/../secret", strip, http1.RefusalAmbiguousPath},
		{"/a/../secret/x", paths, http1.RefusalAmbiguousPath},
		{"/a/b", paths, http1.RefusalNone},
		{"/../a", base, http1.RefusalAmbiguousPath},
		{"/a/b", base, http1.RefusalNone},
		{"http://other.example/", forwards, http1.RefusalOtherHost},
		{"http://other.example/", nil, http1.RefusalNone},
		{"http://upstream.example/", forwards, http1.RefusalNone},
		{"/", forwards, http1.RefusalNone},
	} {
		if got := begin(t, message("GET", tc.target), tc.change).Refusal(); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.target, got, tc.want)
		}
	}
}

func TestWhichRequestsGoNoFurther(t *testing.T) {
	for text, want := range map[string]bool{
		message("OPTIONS", "/a", "Max-Forwards: 0"): true, message("TRACE", "/a", "Max-Forwards: 0"): true,
		message("OPTIONS", "/a", "Max-Forwards: 1"): false, message("GET", "/a", "Max-Forwards: 0"): false, message("OPTIONS", "/a"): false,
	} {
		if got := begin(t, text, nil).IsAnsweredLocally(); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The model in a body decides the route, however the body comes, and the body is still whole.
func TestTheModelInABodyDecidesTheRoute(t *testing.T) {
	models := func(c *settings.Config) {
		r := c.Default
		r.Name, r.Match = "large", route.Match{Model: "large-1"}
		c.Routes = []settings.Route{r}
	}
	large, small := `{"model":"large-1","messages":[]}`, `{"model":"small-1","messages":[]}`
	length := func(body string) string {
		return message("POST", "/v1", fmt.Sprintf("Content-Length: %d", len(body))) + body
	}
	inOnes := message("POST", "/v1", "Transfer-Encoding: chunked") + inChunks(large, 1)
	for name, tc := range map[string]struct {
		text, route, body string
	}{
		"the model":         {length(large), "large", large},
		"another":           {length(small), "default", small},
		"in chunks":         {inOnes, "large", large},
		"no JSON":           {length("model=large-1"), "default", "model=large-1"},
		"no body":           {get(), "default", ""},
		"more than a model": {length(large + strings.Repeat(" ", 10_000)), "large", large + strings.Repeat(" ", 10_000)},
	} {
		c := begin(t, tc.text, models)
		if c.Route.Name != tc.route || c.Dest != c.Route {
			t.Errorf("%s: route %s", name, c.Route.Name)
		}
		wantAll(t, c, tc.body)
	}
}

// A body that does not come, or not so far, says nothing: the request has its route in any case.
func TestABodyThatDoesNotComeSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		models := func(c *settings.Config) {
			r := c.Default
			r.Name, r.Match = "large", route.Match{Model: "large-1"}
			c.Routes = []settings.Route{r}
		}
		began := time.Now()
		c := requesttest.Begin(t, message("POST", "/v1", "Content-Length: 100", "Expect: 100-continue")+`{"mod`, models)
		if d := time.Since(began); c.Route.Name != "default" || d < 5*time.Second || d > 20*time.Second {
			t.Errorf("route %s after %v", c.Route.Name, d)
		}
		if got := c.Wire.String(); !strings.HasPrefix(got, "HTTP/1.1 100 ") {
			t.Errorf("a client that waits for a 100 was not asked for its body: %q", got)
		}
	})
}

// The model may come later than the headers.
func TestABodyThatComesLateSaysItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The pipe passes as much as fits the buffer of a read: the rest is read later.
		body := `{"messages":"` + strings.Repeat("x", 14_000) + `","model":"large-1"}`
		c := requesttest.Begin(t, message("POST", "/v1", "X-Long: "+strings.Repeat("y", 10_000), fmt.Sprintf("Content-Length: %d", len(body)))+body, func(c *settings.Config) {
			r := c.Default
			r.Name, r.Match = "large", route.Match{Model: "large-1"}
			c.Routes = []settings.Route{r}
		})
		if c.Route.Name != "large" {
			t.Errorf("route %s", c.Route.Name)
		}
		c.Prepare()
		wantAll(t, c, body)
	})
}

// Nobody ended a request that never was on its way.
func TestARequestWithoutAnAttemptIsNotEndedByItsClient(t *testing.T) {
	c := begin(t, get(), nil)
	c.ClientFailed(request.ErrBodyCut)
	if c.EndedByClient() {
		t.Error("it was")
	}
}

// A body that has ended, or is none, is not waited for.
func TestABodyThatHasEndedIsNotWaitedFor(t *testing.T) {
	models := func(c *settings.Config) {
		r := c.Default
		r.Name, r.Match = "large", route.Match{Model: "large-1"}
		c.Routes = []settings.Route{r}
	}
	const none = `{"messages":[`
	for name, text := range map[string]string{
		"a length":        message("POST", "/v1", fmt.Sprintf("Content-Length: %d", len(none))) + none,
		"chunks":          message("POST", "/v1", "Transfer-Encoding: chunked") + inChunks(none, 3),
		"malformed":       message("POST", "/v1", "Transfer-Encoding: chunked") + "3\r\n" + `{"m` + "\r\nzz\r\n",
		"an upgrade":      message("POST", "/v1", "Connection: upgrade", "Upgrade: x"),
		"no body":         message("POST", "/v1"),
		"a path of model": message("POST", "/v1/models/large-1:generateContent", "Content-Length: 9"),
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			c := requesttest.Begin(t, text, models)
			want := "default"
			if name == "a path of model" {
				want = "large"
			}
			if d := time.Since(began); d != 0 || c.Route.Name != want {
				t.Errorf("%s: route %s after %v", name, c.Route.Name, d)
			}
		})
	}
}

// Of so many percent of retries none is made, all are, or some.
func TestTheShareOfRetriesThatAreMade(t *testing.T) {
	var p request.Process
	for set, want := range map[int]int{-5: 0, 0: 0, 40: 40, 100: 100, 500: 100} {
		p.SetRetryPercent(set)
		if got := p.RetryPercent(); got != want {
			t.Errorf("%d: %d", set, got)
		}
	}
	for percent, within := range map[int][2]int{100: {2000, 2000}, 0: {0, 0}, 30: {400, 800}} {
		p.SetRetryPercent(percent)
		made := 0
		for range 2000 {
			if p.MakesRetry() {
				made++
			}
		}
		if made < within[0] || made > within[1] {
			t.Errorf("%d percent: %d of 2000", percent, made)
		}
	}
}

// The hooks of the process are called, and nothing else is.
func TestTheHooksOfAProcess(t *testing.T) {
	var called []string
	p := request.NewProcess(7, request.Hooks{
		OnFault: func(fault any) { called = append(called, fmt.Sprint("fault ", fault)) }, OnWait: func() { called = append(called, "wait") },
		CloseIdleUpstream: func() bool { called = append(called, "close"); return true }, UnderPressure: func() bool { return true },
	})
	p.Attempts.OnFault("x")
	p.OnWait()
	if !p.CloseIdleUpstream() || strings.Join(called, ",") != "fault x,wait,close" || p.RetryBuffer.Limit != 7 || p.RetryPercent() != 100 {
		t.Errorf("%v, %d bytes", called, p.RetryBuffer.Limit)
	}
}

// An upstream gets the headers of the client, what we add, and how often the request was sent.
func TestTheHeadersForTheUpstream(t *testing.T) {
	c := begin(t, message("POST", "/a", "X-Its: 1", "X-Request-Id: mine", "X-Retryproxy-Attempt: 3"), func(c *settings.Config) {
		c.Default.GenerateKey = true
		c.Default.Forward = forward.Settings{Host: forward.HostRule{Mode: forward.HostUpstream}, UpstreamHost: "upstream.example"}
	})
	c.Out.Render(wire.Lines)
	first := string(c.Out.Headers())
	for _, want := range []string{"POST /a HTTP/1.1\r\n", "\r\nHost: upstream.example\r\n", "\r\nX-Its: 1\r\n", "\r\nX-Request-Id: mine\r\n", "\r\nIdempotency-Key: " + string(c.Out.GeneratedKey) + "\r\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("no %q in %q", want, first)
		}
	}
	c.Out.Render(wire.Lines)
	if string(c.Out.Headers()) != first || len(c.Out.GeneratedKey) < 16 || c.Out.LacksHost {
		t.Error("the next attempt has other headers")
	}
}

// An id is the client's if it is one, and a new one otherwise. It outlives the client's buffer.
func TestTheIDOfARequest(t *testing.T) {
	c := begin(t, get("X-Request-Id: mine"), nil)
	if string(c.Out.ID) != "mine" {
		t.Errorf("%q", c.Out.ID)
	}
	inBuffer := c.Out.ID
	c.Out.OwnID()
	copy(inBuffer, "xxxx")
	if string(c.Out.ID) != "mine" {
		t.Errorf("%q", c.Out.ID)
	}
	seen := map[string]bool{}
	for range 3 {
		c := begin(t, get("X-Request-Id: no id"), nil)
		seen[string(c.Out.ID)] = true
		c.Out.MakeID()
		seen[string(c.Out.ID)] = true
	}
	if len(seen) != 6 || seen[""] || seen["no id"] {
		t.Errorf("%v", seen)
	}
}
