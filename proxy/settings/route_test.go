package settings_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/trace"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// everything switches on what a dry run and a fallback must not do.
func everything(t *testing.T) func(c *settings.Config) {
	return func(c *settings.Config) {
		r := &c.Default
		r.Guard.NoBreaker = false
		r.FailFast, r.QueueTimeout = false, time.Minute
		r.Probe = admission.Probe{Path: "/healthz"}
		r.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
		r.RateLimit = perMinute(t, "1/m", admission.Sharing{})
		r.HedgeAfter = hedge.After{Fixed: time.Second}
		r.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}, {Status: 200}}
		r.Balance = settings.Balance{RoundRobin: true}
		r.NoBudget = false
	}
}

// A dry run neither queues nor rejects nor retries, and changes nothing else of the route.
func TestADryRunIsARouteThatInterferesWithNothing(t *testing.T) {
	p := start(t, func(c *settings.Config) { everything(t)(c); c.Default.DryRun = true })
	r := p.now.DefaultRoute
	if !r.Guard.NoBreaker || r.Probe.Path != "" || !r.RateLimitPause.SharedBy.None() || r.Terms.RateLimits != nil || len(r.FallbackRoutes) > 0 || r.Hedge != nil || r.RepeatsReset {
		t.Errorf("%+v", r)
	}
	if r.OwnResponse() != nil || p.now.LongestRateLimitPause != 0 || r.LookFor != 0 {
		t.Errorf("own response %v, longest pause %v, looks for %v", r.OwnResponse(), p.now.LongestRateLimitPause, r.LookFor)
	}
	if r.Policy.MaxRetries != 3 || r.RequestTimeout != 30*time.Second {
		t.Errorf("%+v", r.Policy)
	}
	if c := p.now.Config.Default; c.Probe.Path == "" || len(c.Fallbacks) != 2 || c.Guard.NoBreaker {
		t.Error("the configuration itself was changed")
	}
}

// A fallback gets one attempt, at once, and the rules of the route for everything else.
func TestAFallbackIsARouteWithoutQueuesAndRetries(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		everything(t)(c)
		c.Default.Forward.StripPrefix = "/own"
		c.Default.Fallbacks[0].Forward.StripPrefix = "/spare"
	})
	own := p.now.DefaultRoute
	if len(own.FallbackRoutes) != 1 {
		t.Fatalf("%d fallback upstreams", len(own.FallbackRoutes))
	}
	to := own.FallbackRoutes[0]
	if !to.IsFallback || own.IsFallback || to.Upstream.Host != "spare.example" || to.Forward.StripPrefix != "/spare" || to.UpstreamState == own.UpstreamState {
		t.Errorf("%+v", to)
	}
	if to.RetryBudget() != nil || !to.FailFast || to.Probe.Path != "" || !to.RateLimitPause.SharedBy.None() ||
		to.Terms.RateLimits != nil || to.Hedge != nil || !to.HedgeAfter.Off() || to.Balance.RoundRobin || len(to.Fallbacks) > 0 {
		t.Errorf("%+v", to.Route)
	}
	if to.RequestTimeout != own.RequestTimeout || to.RetryBufferBytes != own.RetryBufferBytes || to.IsPlainSuccess(&ok) != own.IsPlainSuccess(&ok) {
		t.Error("its other rules are not those of the route")
	}
	if own.FailFast || own.Upstream.Host != "upstream.example" || own.Hedge == nil || own.Terms.RateLimits == nil || !own.RepeatsReset {
		t.Errorf("the route itself has changed: %+v", own.Route)
	}
	if p.now.Budgeted[to.UpstreamState] {
		t.Error("the budget of a fallback is used")
	}
}

// An attempt at a fallback ends even if the route sets no time.
func TestTheTimeOfAFallback(t *testing.T) {
	for _, tc := range []struct{ request, attempt, want time.Duration }{
		{0, 0, 10 * time.Second}, {time.Minute, 0, 0}, {0, time.Minute, time.Minute}, {time.Hour, time.Minute, time.Minute},
	} {
		p := start(t, func(c *settings.Config) {
			c.Default.RequestTimeout, c.Default.AttemptTimeout = tc.request, tc.attempt
			c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
		})
		if got := p.now.DefaultRoute.FallbackRoutes[0].AttemptTimeout; got != tc.want {
			t.Errorf("%v, %v: %v, want %v", tc.request, tc.attempt, got, tc.want)
		}
		if got := p.now.DefaultRoute.AttemptTimeout; got != tc.attempt {
			t.Errorf("the route's own: %v", got)
		}
	}
}

// Each fallback upstream keeps a tenth of a request's time for itself and leaves what is for the later ones.
func TestTimeIsKeptForFallbacks(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		for _, name := range []string{"one", "two", "three"} {
			c.Default.Fallbacks = append(c.Default.Fallbacks, settings.Fallback{Upstream: target(t, "http://"+name+".example")})
		}
		c.Default.Fallbacks = append(c.Default.Fallbacks, settings.Fallback{Status: 204})
	})
	r := p.now.DefaultRoute
	for i, want := range []time.Duration{7 * time.Second, 8 * time.Second, 9 * time.Second, 10 * time.Second} {
		if got := r.OwnShare(10 * time.Second); got != want {
			t.Errorf("before fallback %d: %v, want %v", i, got, want)
		}
		if i < 3 {
			r = p.now.DefaultRoute.FallbackRoutes[i]
		}
	}
	if got := start(t, nil).now.DefaultRoute.OwnShare(time.Second); got != time.Second {
		t.Errorf("without a fallback %v of a second", got)
	}
	if own := p.now.DefaultRoute.OwnResponse(); own == nil || own.Status != 204 {
		t.Errorf("%+v", own)
	}
	if own := p.now.DefaultRoute.FallbackRoutes[0].OwnResponse(); own != nil {
		t.Errorf("a fallback's own response %+v", own)
	}
}

type tracer struct{}

func (tracer) Request(*trace.Request) trace.RequestSpan { return nil }

// With a tracer the upstream gets the trace of the attempt, and not also the client's.
func TestWithATracerTheClientsTraceIsNotForwarded(t *testing.T) {
	for _, traces := range []bool{true, false} {
		p := start(t, func(c *settings.Config) {
			c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
			if traces {
				c.Tracer = tracer{}
			}
		})
		r := p.now.DefaultRoute
		if r.Forward.OmitTrace != traces || r.FallbackRoutes[0].Forward.OmitTrace != traces {
			t.Errorf("tracer %v: left out %v, of a fallback %v", traces, r.Forward.OmitTrace, r.FallbackRoutes[0].Forward.OmitTrace)
		}
		if c := p.now.Config.Default; c.Forward.OmitTrace || c.Fallbacks[0].Forward.OmitTrace {
			t.Error("the configuration itself was changed")
		}
	}
}

type named struct {
	settings.NoObserver
	route string
}

// Each route has its observers; whoever observes none may leave them out.
func TestEachRouteHasItsObservers(t *testing.T) {
	asked := map[string]int{}
	p := start(t, func(c *settings.Config) {
		also(c, "second", nil)
		c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
		c.Observe = func(route string) func() settings.Observer {
			asked[route]++
			return func() settings.Observer { return &named{route: route} }
		}
	})
	for _, r := range []*settings.RouteState{p.now.DefaultRoute, p.now.All[0]} {
		one, two := r.NewObserver().(*named), r.NewObserver().(*named)
		if one.route != r.Name || one == two {
			t.Errorf("route %s has observers of %s, two are the same: %v", r.Name, one.route, one == two)
		}
	}
	if len(asked) != 2 || asked["default"] != 1 || asked["second"] != 1 {
		t.Errorf("asked %v", asked)
	}
	o := start(t, nil).now.DefaultRoute.NewObserver()
	o.RequestBegan()
	o.RequestDone(nil, 200, policy.OutcomeSuccess, 0, 0, 1) // nobody hears of it
}

func TestTheLongestPauseIsThatOfARouteThatSharesPauses(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		c.Default.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Route: true}, Max: time.Minute}
		also(c, "shorter", func(r *settings.Route) { r.RateLimitPause.Max = time.Second })
		also(c, "alone", func(r *settings.Route) {
			r.RateLimitPause = settings.RateLimitPause{Max: time.Hour}
		})
	})
	if got := p.now.LongestRateLimitPause; got != time.Minute {
		t.Error(got)
	}
}

// ok is a response that most rules have nothing to say about.
var ok = policy.Result{Cause: policy.CauseStatus, Status: 200}

// Which responses need no second look, and whether a connection that ended is worth one.
func TestWhatTheRulesSayOfMostResponses(t *testing.T) {
	for on, plain := range map[string]bool{
		"5xx,429": true, "reset": true, "404": true, "300": true, "299": false, "200": false, "204,5xx": false, "retriable-header:X-A": false, "grpc-unavailable": false,
	} {
		rules, err := policy.ParseRetryOn(on)
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, func(c *settings.Config) { c.Default.Policy.RetryOn = rules })
		if got := p.now.DefaultRoute.IsPlainSuccess(&ok); got != plain {
			t.Errorf("%s: plain %v", on, got)
		}
	}
	for on, repeats := range map[string]bool{"5xx": false, "reset": true, "connect-failure": false} {
		rules, err := policy.ParseRetryOn(on)
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, func(c *settings.Config) { c.Default.Policy.RetryOn = rules })
		if got := p.now.DefaultRoute.RepeatsReset; got != repeats {
			t.Errorf("%s: repeats resets %v", on, got)
		}
	}
}

func TestWhichRequestsShareAPause(t *testing.T) {
	key := func(change func(r *settings.Route), model string, lines ...string) string {
		p := start(t, func(c *settings.Config) {
			c.Default.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Header: "X-Key"}}
			if change != nil {
				change(&c.Default)
			}
		})
		var of []byte
		if model != "" {
			of = []byte(model)
		}
		k, ok := p.now.DefaultRoute.PauseKey(parsed(t, "/", lines...), of)
		if !ok {
			return "none"
		}
		return fmt.Sprint(k)
	}
	by := func(by admission.Sharing) func(r *settings.Route) {
		return func(r *settings.Route) { r.RateLimitPause.SharedBy = by }
	}
	model := func(header string) func(r *settings.Route) {
		return by(admission.Sharing{Header: header, Model: true})
	}
	a, byModel, byBoth := key(nil, "", "X-Key: a"), key(model(""), "m"), key(model("X-Key"), "m", "X-Key: a")
	for name, tc := range map[string]struct{ got, as, not string }{
		"the same value in another process": {key(nil, "", "x-key: a"), a, ""},
		"another value":                     {key(nil, "", "X-Key: b"), "", a},
		"the first of two":                  {key(nil, "", "X-Key: a", "X-Key: b"), a, ""},
		"no value":                          {key(nil, ""), "none", ""},
		"another name of the route":         {key(func(r *settings.Route) { r.Name = "other" }, "", "X-Key: a"), "", a},
		"another upstream":                  {key(func(r *settings.Route) { r.Upstream = target(t, "http://other.example") }, "", "X-Key: a"), "", a},
		"another header":                    {key(by(admission.Sharing{Header: "X-Other"}), "", "X-Other: a"), "", a},
		"another time":                      {key(func(r *settings.Route) { r.RequestTimeout = time.Hour }, "", "X-Key: a"), a, ""},
		"a header that is not the key":      {key(nil, "", "X-Key: a", "X-Other: b"), a, ""},
		"none shared":                       {key(by(admission.Sharing{}), "", "X-Key: a"), "none", ""},
		"by model":                          {key(model(""), "m", "X-Key: b"), byModel, "none"},
		"another model":                     {key(model(""), "n"), "", byModel},
		"no model":                          {key(model(""), ""), "none", ""},
		"by both":                           {key(model("X-Key"), "m", "X-Key: a"), byBoth, a},
		"another model of both":             {key(model("X-Key"), "n", "X-Key: a"), "", byBoth},
		"another value of both":             {key(model("X-Key"), "m", "X-Key: b"), "", byBoth},
		"a value without a model":           {key(model("X-Key"), "", "X-Key: a"), "none", ""},
		"a model without a value":           {key(model("X-Key"), "m"), "none", ""},
	} {
		if tc.as != "" && tc.got != tc.as || tc.got == tc.not || tc.as == "" && tc.got == "none" {
			t.Errorf("%s: %s", name, tc.got)
		}
	}
	route := by(admission.Sharing{Route: true})
	if one, two := key(route, "", "X-Key: a"), key(route, ""); one != two || one == "none" {
		t.Errorf("requests of a route: %s, %s", one, two)
	}
}

// Requests of one account have the same credentials at the same upstream, and nothing else in common.
func TestWhichRequestsAreOfOneAccount(t *testing.T) {
	sets := func(name, value string) func(r *settings.Route) {
		return func(r *settings.Route) {
			r.Forward.Changes = forward.NewHeaderChanges([]http1.Header{http1.NewHeader(name, value)}, nil)
		}
	}
	account := func(change func(r *settings.Route), to string, lines ...string) uint64 {
		p := start(t, func(c *settings.Config) {
			if change != nil {
				change(&c.Default)
			}
		})
		return p.now.DefaultRoute.AccountKey(parsed(t, to, lines...))
	}
	const key = "Authorization: Bearer a"
	same, ours := account(nil, "/", key), account(sets("X-Api-Key", "ours"), "/", key)
	for name, tc := range map[string]struct {
		got  uint64
		of   uint64
		same bool
	}{
		"the same":                      {account(nil, "/other?q=1", "authorization: Bearer a", "X-Other: b"), same, true},
		"another key":                   {account(nil, "/", "Authorization: Bearer b"), same, false},
		"no key":                        {account(nil, "/"), same, false},
		"the same in another header":    {account(nil, "/", "X-Api-Key: Bearer a"), same, false},
		"two credentials":               {account(nil, "/", key, "Api-Key: c"), same, false},
		"one more":                      {account(nil, "/", key, "X-Goog-Api-Key: c"), same, false},
		"another organization":          {account(nil, "/", key, "OpenAI-Organization: o"), same, false},
		"another project":               {account(nil, "/", key, "OpenAI-Project: o"), same, false},
		"another project, Google":       {account(nil, "/", key, "X-Goog-User-Project: o"), same, false},
		"a key in the query":            {account(nil, "/?key=1", key), same, false},
		"a token in the query":          {account(nil, "/?access_token=1", key), same, false},
		"another upstream":              {account(func(r *settings.Route) { r.Upstream = target(t, "http://other.example") }, "/", key), same, false},
		"ours":                          {account(sets("X-Api-Key", "ours"), "/", key, "X-Api-Key: its"), ours, true},
		"ours, and what is the clients": {account(sets("X-Api-Key", "ours"), "/", "Authorization: Bearer b"), ours, false},
		"another of ours":               {account(sets("X-Api-Key", "other"), "/", key), ours, false},
	} {
		if (tc.got == tc.of) != tc.same {
			t.Errorf("%s: one account %v", name, tc.got == tc.of)
		}
	}
	for name, want := range map[string]bool{"Authorization": true, "x-api-key": true, "API-Key": true, "X-Goog-Api-Key": true, "X-Other": false, "OpenAI-Project": false} {
		p := start(t, func(c *settings.Config) { sets(name, "v")(&c.Default) })
		if got := p.now.DefaultRoute.OwnsAccount(); got != want {
			t.Errorf("a route that sets %s: its account is not the client's: %v", name, got)
		}
	}
}

func TestWhatIsLookedForInBodies(t *testing.T) {
	limit := perMinute(t, "1/m", admission.Sharing{Header: "X-Key"})
	counts := limit
	counts.Learn = true
	byModel := limit
	byModel.SharedBy = admission.Sharing{Model: true}
	for name, tc := range map[string]struct {
		change func(r *settings.Route)
		want   tokens.Want
	}{
		"nothing":          {func(r *settings.Route) {}, 0},
		"a rate limit":     {func(r *settings.Route) { r.RateLimit = limit }, 0},
		"pause by model":   {func(r *settings.Route) { r.RateLimitPause.SharedBy.Model = true }, tokens.WantModel},
		"limit by model":   {func(r *settings.Route) { r.RateLimit = byModel }, tokens.WantModel},
		"a model, no rate": {func(r *settings.Route) { r.RateLimit.SharedBy.Model = true }, 0},
		"tokens":           {func(r *settings.Route) { r.RateLimit = counts }, tokens.WantOutput | tokens.WantInput},
	} {
		p := start(t, func(c *settings.Config) { tc.change(&c.Default) })
		if got := p.now.DefaultRoute.LookFor; got != tc.want {
			t.Errorf("%s: %b, want %b", name, got, tc.want)
		}
	}
}

// A forward proxy serves whoever means its upstream, and no one who means another.
func TestWhichAbsoluteTargetsARouteAccepts(t *testing.T) {
	for _, tc := range []struct {
		upstream, host, target string
		want                   bool
	}{
		{"http://upstream.example", "", "http://upstream.example/", true},
		{"http://upstream.example", "", "http://UPSTREAM.example:80/", true},
		{"http://upstream.example", "", "http://upstream.example:8080/", false},
		{"http://upstream.example", "", "http://other.example/", false},
		{"http://upstream.example", "", "https://upstream.example/", false},
		{"https://upstream.example", "", "https://upstream.example/", true},
		{"http://one.example,http://two.example", "", "http://two.example/", true},
		{"http://one.example,http://two.example", "", "http://three.example/", false},
		{"http://upstream.example", "other.example", "http://other.example/", true},
		{"http://upstream.example", "other.example", "http://other.example:80/", true},
		{"http://upstream.example", "other.example", "http://other.example:8080/", false},
		{"http://upstream.example", "other.example:8080", "http://other.example:8080/", true},
		{"http://upstream.example", "other.example:8080,third.example", "http://other.example:8080/", false},
		{"http://upstream.example", "other.example", "http://upstream.example:80/", true},
	} {
		p := start(t, func(c *settings.Config) {
			c.Default.Upstream, c.Default.Match.Host = target(t, tc.upstream), tc.host
		})
		if got := p.now.DefaultRoute.Accepts(parsed(t, tc.target)); got != tc.want {
			t.Errorf("%s, host %q: %s: %v", tc.upstream, tc.host, tc.target, got)
		}
	}
}

func TestWhichRoutesSendBelowAPath(t *testing.T) {
	spare := settings.Fallback{Upstream: target(t, "http://spare.example")}
	below := spare
	below.Forward.BasePath = "/v2"
	for name, tc := range map[string]struct {
		own       string
		fallbacks []settings.Fallback
		want      bool
	}{
		"none":       {"", nil, false},
		"its own":    {"/v1", nil, true},
		"a fallback": {"", []settings.Fallback{spare, below}, true},
		"neither":    {"", []settings.Fallback{spare}, false},
	} {
		p := start(t, func(c *settings.Config) { c.Default.Forward.BasePath, c.Default.Fallbacks = tc.own, tc.fallbacks })
		if got := p.now.DefaultRoute.HasBasePath(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestTheRouteOfARequest(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		also(c, "a", nil)
		also(c, "there", func(r *settings.Route) { r.Match.Listen = "there" })
	})
	for _, tc := range []struct{ listener, target, want string }{
		{"", "/a", "a"}, {"", "/b", "default"}, {"there", "/there", "there"}, {"", "/there", "default"}, {"there", "/a", "default"},
	} {
		q := parsed(t, tc.target)
		if got := p.now.Find(tc.listener, q, q); got.Name != tc.want {
			t.Errorf("%s %s: %s", tc.listener, tc.target, got.Name)
		}
	}
	only := start(t, nil).now
	if q := parsed(t, "/a"); only.Find("there", q, q) != only.DefaultRoute {
		t.Error("not the only route")
	}
}

func TestWhoAPeerIs(t *testing.T) {
	trusts := func(c *settings.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")} }
	for name, tc := range map[string]struct {
		addr                net.Addr
		change              func(c *settings.Config)
		text                string
		trusted, configured bool
	}{
		"a stranger":             {&net.TCPAddr{IP: net.ParseIP("192.0.2.1")}, trusts, "192.0.2.1", false, true},
		"a trusted proxy":        {&net.TCPAddr{IP: net.ParseIP("10.1.2.3")}, trusts, "10.1.2.3", true, true},
		"the same as IPv6":       {net.TCPAddrFromAddrPort(netip.MustParseAddrPort("[::ffff:10.1.2.3]:1")), trusts, "10.1.2.3", true, true},
		"with a zone":            {&net.TCPAddr{IP: net.ParseIP("fe80::1"), Zone: "eth0"}, trusts, "fe80::1", false, true},
		"nothing configured":     {&net.TCPAddr{IP: net.ParseIP("10.1.2.3")}, nil, "10.1.2.3", false, false},
		"a unix socket":          {&net.UnixAddr{Name: "/run/x"}, trusts, "unix", true, true},
		"somebody without a way": {&net.IPAddr{}, trusts, "", false, true},
	} {
		peer := settings.PeerOf(tc.addr, start(t, tc.change).now)
		if peer.Text != tc.text || peer.Trusted != tc.trusted || peer.TrustConfigured != tc.configured || peer.Secure {
			t.Errorf("%s: %+v", name, peer)
		}
		if peer.Addr.IsValid() != (tc.text != "" && tc.text != "unix") {
			t.Errorf("%s: address %v", name, peer.Addr)
		}
	}
}

type from struct {
	net.Conn
	addr net.Addr
}

func (c from) RemoteAddr() net.Addr { return c.addr }

func TestWhoseConnectionsBeginWithAPROXYHeader(t *testing.T) {
	set := start(t, func(c *settings.Config) {
		c.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	}).now
	for addr, want := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.ParseIP("10.1.2.3")}: true, &net.TCPAddr{IP: net.ParseIP("192.0.2.1")}: false, &net.UnixAddr{Name: "/run/x"}: false,
	} {
		if got := set.Announces(from{addr: addr}); got != want {
			t.Errorf("%v: %v", addr, got)
		}
	}
	if start(t, nil).now.Announces(from{addr: &net.TCPAddr{IP: net.ParseIP("10.1.2.3")}}) {
		t.Error("a header that nobody asked for")
	}
}

func TestWhatIsOfferedToClients(t *testing.T) {
	certificate := &tls.Config{ServerName: "x", NextProtos: []string{"other"}}
	for name, tc := range map[string]struct {
		tls     *tls.Config
		streams int
		debug   string
		want    string
		http2   bool
		warns   string
	}{
		"plain":              {nil, 10, "", "", true, ""},
		"TLS":                {certificate, 10, "", "h2 http/1.1", true, ""},
		"TLS without HTTP/2": {certificate, 0, "", "http/1.1", false, ""},
		"net/http's is off":  {certificate, 10, "http2server=0", "h2 http/1.1", true, ""},
		"not with upstreams": {nil, 10, "http2client=0", "", true, "not used with upstreams"},
	} {
		t.Setenv("GODEBUG", tc.debug)
		log, lines := logger()
		set := start(t, func(c *settings.Config) { c.TLS, c.MaxConcurrentStreams, c.Log = tc.tls, tc.streams, log }).now
		got := ""
		if set.ClientTLS != nil {
			got = strings.Join(set.ClientTLS.NextProtos, " ")
		}
		if got != tc.want || set.HTTP2 != tc.http2 || (set.ClientTLS != nil) != (tc.tls != nil) {
			t.Errorf("%s: %q, HTTP/2 %v", name, got, set.HTTP2)
		}
		set.WarnOfHTTP2Off()
		if text := lines.String(); !strings.Contains(text, tc.warns) || tc.warns == "" && text != "" {
			t.Errorf("%s: logs %q", name, text)
		}
	}
	if strings.Join(certificate.NextProtos, " ") != "other" {
		t.Error("the configuration itself was changed")
	}
}

func logger() (*zap.Logger, *bytes.Buffer) {
	b := &bytes.Buffer{}
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{MessageKey: "msg"}), zapcore.AddSync(b), zap.InfoLevel)), b
}

// A configuration without a log logs nothing.
func TestNothingIsLoggedWithoutALog(t *testing.T) {
	t.Setenv("GODEBUG", "http2client=0")
	p := start(t, nil)
	p.now.WarnOfHTTP2Off()
	p.now.DefaultRoute.UpstreamState.DialFailures.Record(&upstream.DialError{Addr: "192.0.2.1:80", Err: errors.New("no room")})
	p.now.DefaultRoute.LogsGivenUp()
	p.now.FlushLogs()
}

// Lines that were not written are counted when their configuration ends.
func TestLinesThatWereSuppressedAreCounted(t *testing.T) {
	log, lines := logger()
	p := start(t, func(c *settings.Config) {
		c.Log, c.GaveUpLogPerMinute = log, 2
		also(c, "second", nil)
		c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
	})
	written := 0
	for range 5 {
		if p.now.DefaultRoute.LogsGivenUp() {
			written++
		}
	}
	dials := p.now.DefaultRoute.UpstreamState.DialFailures
	for range 3 {
		dials.Record(&upstream.DialError{Addr: "192.0.2.1:80", Err: errors.New("no room")})
	}
	p.now.FlushLogs()
	text := lines.String()
	if written != 2 || !strings.Contains(text, `"route":"default","count":3`) || strings.Contains(text, `"route":"second"`) {
		t.Errorf("%d written, then %s", written, text)
	}
	if !strings.Contains(text, `"upstream":"http://upstream.example:80","count":2`) {
		t.Errorf("no count of connections in %s", text)
	}
	before := lines.Len()
	p.now.FlushLogs()
	if lines.Len() != before {
		t.Errorf("counted twice: %s", lines.String())
	}
}

// An operator reads when an endpoint fails its checks and when it passes again, in one line each.
func TestHealthChecksAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, lines := logger()
		var well atomic.Bool
		p := start(t, func(c *settings.Config) {
			c.Log = log
			c.Default.Upstream = target(t, "http://192.0.2.1,http://192.0.2.2")
			c.Default.Upstream.Dial = func(_ context.Context, _, addr string) (net.Conn, error) {
				if !well.Load() && strings.HasPrefix(addr, "192.0.2.2:") {
					return nil, errors.New("no\x1broom" + strings.Repeat("x", 1000))
				}
				near, far := net.Pipe()
				go func() {
					_, _ = far.Read(make([]byte, 4096))
					_, _ = io.WriteString(far, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
					_ = far.Close()
				}()
				return near, nil
			}
			c.Default.HealthCheck = upstream.HealthCheck{Path: "/healthz", Interval: time.Second}
		})
		time.Sleep(20 * time.Second)
		synctest.Wait()
		text := lines.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "fails its health checks") || !strings.Contains(text, `"address":"192.0.2.2:80"`) || !strings.Contains(text, `"upstream":"http://192.0.2.1`) || !strings.Contains(text, `no?room`) || len(text) > 600 {
			t.Errorf("%s", text)
		}
		well.Store(true)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if text := strings.TrimPrefix(lines.String(), text); strings.Count(text, "\n") != 1 || !strings.Contains(text, "passes its health checks again") || !strings.Contains(text, `"address":"192.0.2.2:80"`) {
			t.Errorf("%s", text)
		}
		for _, u := range p.now.Upstreams() {
			u.Close()
		}
	})
}
