package settings_test

import (
	"crypto/tls"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/policy/budget"
	"github.com/retryproxy/retryproxy/policy/hedge"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http2"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/request"
	"github.com/retryproxy/retryproxy/proxy/route"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// what two routes may differ in, and whether they then still share what is known about the upstream.
var differences = map[string]struct {
	change func(r *settings.Route)
	shares bool
}{
	"nothing":      {func(r *settings.Route) {}, true},
	"name":         {func(r *settings.Route) { r.Name = "other" }, true},
	"policy":       {func(r *settings.Route) { r.Policy.MaxRetries = 9 }, true},
	"timeouts":     {func(r *settings.Route) { r.RequestTimeout, r.AttemptTimeout = time.Hour, time.Hour }, true},
	"base path":    {func(r *settings.Route) { r.Upstream.BasePath = "/v2" }, true},
	"headers":      {func(r *settings.Route) { r.Forward.Host.Mode = forward.HostPreserve }, true},
	"hedging":      {func(r *settings.Route) { r.HedgeAfter = hedge.After{Fixed: time.Second} }, true},
	"breaker mode": {func(r *settings.Route) { r.FailFast = true }, true},
	"no budget":    {func(r *settings.Route) { r.NoBudget = false }, true},
	"address":      {func(r *settings.Route) { r.Upstream.Address = "other.example:80" }, false},
	"TLS":          {func(r *settings.Route) { r.Upstream.TLS = &tls.Config{ServerName: "upstream.example"} }, false},
	"budget":       {func(r *settings.Route) { r.Budget = budget.Config{Burst: 7} }, false},
	"breaker":      {func(r *settings.Route) { r.Guard = breaker.Options{} }, false},
	"concurrency limit": {func(r *settings.Route) {
		r.Guard.ConcurrencyLimit, r.Guard.FixedLimit = breaker.ConcurrencyLimitFixed, 3
	}, false},
	"length of the queue": {func(r *settings.Route) { r.QueueMax++ }, false},
	"order of the queue":  {func(r *settings.Route) { r.QueueOldest = true }, false},
	"probe":               {func(r *settings.Route) { r.Probe.Path = "/healthz" }, false},
	"ejection":            {func(r *settings.Route) { r.Eject.After = 9 }, false},
	"health check":        {func(r *settings.Route) { r.HealthCheck = upstream.HealthCheck{Path: "/healthz", Interval: time.Hour} }, false},
	"dry run":             {func(r *settings.Route) { r.DryRun = true }, false},
}

func TestWhichRoutesShareTheStateOfAnUpstream(t *testing.T) {
	for name, tc := range differences {
		set := start(t, func(c *settings.Config) { also(c, "second", tc.change) }).now
		first, second := set.DefaultRoute, set.All[0]
		if got := first.UpstreamState == second.UpstreamState; got != tc.shares {
			t.Errorf("they differ in %s: shared %v", name, got)
		}
		want := 2
		if tc.shares {
			want = 1
		}
		if got := len(set.Upstreams()); got != want {
			t.Errorf("they differ in %s: %d upstreams listed, want %d", name, got, want)
		}
	}
}

func TestWhichStateOfAnUpstreamSurvivesAReload(t *testing.T) {
	for name, tc := range differences {
		p := start(t, nil)
		before := p.now
		state := before.DefaultRoute.UpstreamState
		after := p.reload(func(c *settings.Config) { tc.change(&c.Default) })
		if got := after.DefaultRoute.UpstreamState == state; got != tc.shares {
			t.Errorf("a change of %s: survives %v", name, got)
		}
		if before.DefaultRoute.UpstreamState != state || before.DefaultRoute == after.DefaultRoute || before.DefaultRoute.RequestTimeout != 30*time.Second {
			t.Errorf("a change of %s changed the settings of running requests", name)
		}
	}
}

// A route may come and go, and be the default or not: what is known of its upstream stays.
func TestStateSurvivesTheRouteThatHadIt(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		also(c, "second", func(r *settings.Route) { r.Upstream = target(t, "http://other.example") })
		c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
	})
	second, spare := p.now.All[0].UpstreamState, p.now.DefaultRoute.FallbackRoutes[0].UpstreamState
	p.reload(func(c *settings.Config) { c.Default.Upstream = target(t, "http://other.example") })
	if p.now.DefaultRoute.UpstreamState != second {
		t.Error("the state of a route that is now the default one is lost")
	}
	p.reload(func(c *settings.Config) {
		c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
	})
	if p.now.DefaultRoute.UpstreamState == second || p.now.DefaultRoute.FallbackRoutes[0].UpstreamState == spare {
		t.Error("state survived without a route")
	}
	spare = p.now.DefaultRoute.FallbackRoutes[0].UpstreamState
	p.reload(func(c *settings.Config) {
		c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
	})
	if p.now.DefaultRoute.FallbackRoutes[0].UpstreamState != spare {
		t.Error("the state of a fallback is lost")
	}
}

// Learnt latencies are those of a route to an upstream, for one kind of hedging.
func TestWhichHedgesSurviveAReload(t *testing.T) {
	p95 := func(c *settings.Config) { c.Default.HedgeAfter = hedge.After{Percent: 95} }
	for name, tc := range map[string]struct {
		change   func(r *settings.Route)
		survives bool
	}{
		"nothing":  {func(r *settings.Route) {}, true},
		"timeouts": {func(r *settings.Route) { r.RequestTimeout = time.Hour }, true},
		"name":     {func(r *settings.Route) { r.Name = "other" }, false},
		"upstream": {func(r *settings.Route) { r.Upstream = target(t, "http://other.example") }, false},
		"when":     {func(r *settings.Route) { r.HedgeAfter.Percent = 90 }, false},
	} {
		p := start(t, p95)
		known := p.now.DefaultRoute.Hedge
		p.reload(func(c *settings.Config) { p95(c); tc.change(&c.Default) })
		if got := p.now.DefaultRoute.Hedge; got == nil || known == nil || (got == known) != tc.survives {
			t.Errorf("a change of %s: survives %v", name, got == known)
		}
	}
	p := start(t, nil)
	if p.now.DefaultRoute.Hedge != nil {
		t.Error("hedges that nobody asked for")
	}
	p.reload(p95) // nothing to learn from
	if p.now.DefaultRoute.Hedge == nil {
		t.Error("no hedges after a reload")
	}
}

// A second attempt to the same endpoint would be as slow as the first.
func TestASlowAttemptIsHedgedOnlyToAnotherEndpoint(t *testing.T) {
	for to, want := range map[string]bool{"http://127.0.0.1:1": false, "http://upstream.example": true, "http://127.0.0.1:1,http://127.0.0.1:2": true} {
		p := start(t, func(c *settings.Config) {
			c.Default.Upstream, c.Default.HedgeAfter = target(t, to), hedge.SlowAttempt()
		})
		if got := p.now.DefaultRoute.Hedge != nil; got != want {
			t.Errorf("%s: %v", to, got)
		}
	}
	p := start(t, func(c *settings.Config) {
		c.Default.Upstream, c.Default.HedgeAfter = target(t, "http://127.0.0.1:1"), hedge.After{Fixed: time.Second}
	})
	if p.now.DefaultRoute.Hedge == nil {
		t.Error("whoever asks for hedges of one endpoint gets none")
	}
}

func TestWhichRateLimitsAreSharedAndSurvive(t *testing.T) {
	for name, tc := range map[string]struct {
		by       admission.Sharing
		change   func(r *settings.Route)
		shared   bool // by a second route that differs so
		survives bool // if the route changes so
	}{
		"name":              {admission.Sharing{}, func(r *settings.Route) { r.Name = "other" }, true, true},
		"name, by route":    {admission.Sharing{Route: true}, func(r *settings.Route) { r.Name = "other" }, false, false},
		"timeout, by route": {admission.Sharing{Route: true}, func(r *settings.Route) { r.Name, r.RequestTimeout = "default", time.Hour }, true, true},
		"rate":              {admission.Sharing{}, func(r *settings.Route) { r.RateLimit = perMinute(t, "2/m", r.RateLimit.SharedBy) }, false, false},
		"upstream":          {admission.Sharing{}, func(r *settings.Route) { r.Upstream = target(t, "http://other.example") }, false, false},
		"how long it waits": {admission.Sharing{}, func(r *settings.Route) { r.RateLimit.Wait = time.Hour }, true, true},
	} {
		p := start(t, func(c *settings.Config) {
			c.Default.RateLimit = perMinute(t, "1/m", tc.by)
			also(c, "second", tc.change)
		})
		first, second := p.now.DefaultRoute.Terms.RateLimits, p.now.All[0].Terms.RateLimits
		if first == nil || (first == second) != tc.shared {
			t.Errorf("they differ in %s: shared %v", name, first == second)
		}
		if q := p.now.RateLimitQueue(first.Common.Key); q != first.Common {
			t.Errorf("%s: the queue is not found by its key", name)
		}
		p.reload(func(c *settings.Config) {
			c.Default.RateLimit = perMinute(t, "1/m", tc.by)
			tc.change(&c.Default)
		})
		if got := p.now.DefaultRoute.Terms.RateLimits == first; got != tc.survives {
			t.Errorf("a change of %s: survives %v", name, got)
		}
		if got := p.now.RateLimitQueue(first.Common.Key) != nil; got != tc.survives {
			t.Errorf("a change of %s: found by its key %v", name, got)
		}
	}
	if p := start(t, nil); p.now.DefaultRoute.Terms.RateLimits != nil || p.now.RateLimitQueue(1) != nil || len(p.now.RateLimitStats()) > 0 {
		t.Error("rate limits that nobody asked for")
	}
}

// The rate limits of one upstream and rate are one line for an operator, however many keys they have.
func TestStatsAddUpTheRateLimitsOfAnUpstream(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		c.Default.RateLimit = perMinute(t, "2/m", admission.Sharing{Route: true})
		also(c, "second", nil)
		also(c, "third", func(r *settings.Route) { r.RateLimit = perMinute(t, "3/m", admission.Sharing{Route: true}) })
	})
	for _, r := range p.now.All {
		if !r.Terms.RateLimits.Common.TakeNow(p.Clock.Elapsed(), nil) {
			t.Fatal("no slot")
		}
	}
	got := map[string]uint64{}
	for _, s := range p.now.RateLimitStats() {
		if s.Upstream != "http://upstream.example:80" && s.Upstream != "http://upstream.example" {
			t.Errorf("upstream %s", s.Upstream)
		}
		got[s.Rate] = s.State.Own
	}
	if len(got) != 2 || got["2/m"] != 2 || got["3/m"] != 1 {
		t.Errorf("%v", got)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *settings.Config)
		says   []string
	}{
		"no upstream": {func(c *settings.Config) { c.Default.Upstream = upstream.Target{} }, []string{"upstream", "default"}},
		"routes alike": {func(c *settings.Config) {
			also(c, "a", nil)
			also(c, "b", func(r *settings.Route) { r.Match.Path = "/a" })
		}, []string{"routes", "a", "b"}},
		"a malformed path": {func(c *settings.Config) {
			also(c, "a", func(r *settings.Route) { r.Match = route.Match{Path: "/a/../b"} })
		}, []string{"routes", "a"}},
	} {
		config := requesttest.Config(t)
		tc.change(config)
		p := request.NewProcess(0, request.Hooks{})
		set, err := settings.Prepare(config, p.ForSettings(http2.ReadAhead{}), nil)
		if err == nil || set != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, word := range tc.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q does not say %s", name, err, word)
			}
		}
	}
}

// A budget is shared between processes by a key that all of them find.
func TestTheKeyOfABudget(t *testing.T) {
	key := func(change func(r *settings.Route)) uint64 {
		return start(t, func(c *settings.Config) {
			c.Default.Budget = budget.Config{Ratio: 0.1, MinPerSecond: 2, Burst: 3}
			change(&c.Default)
		}).now.DefaultRoute.UpstreamState.BudgetKey
	}
	same := key(func(r *settings.Route) {})
	for name, tc := range map[string]struct {
		change func(r *settings.Route)
		same   bool
	}{
		"another process": {func(r *settings.Route) {}, true},
		"route":           {func(r *settings.Route) { r.Name, r.QueueMax = "other", 99 }, true},
		"upstream":        {func(r *settings.Route) { r.Upstream = target(t, "http://other.example") }, false},
		"ratio":           {func(r *settings.Route) { r.Budget.Ratio = 0.2 }, false},
		"rate":            {func(r *settings.Route) { r.Budget.MinPerSecond = 3 }, false},
		"burst":           {func(r *settings.Route) { r.Budget.Burst = 4 }, false},
	} {
		if got := key(tc.change) == same; got != tc.same {
			t.Errorf("%s: the same key %v", name, got)
		}
	}
}

// The budget is that of the upstream, for the routes that have one.
func TestWhichBudgetsAreUsed(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		c.Default.NoBudget = false
		also(c, "without", func(r *settings.Route) { r.NoBudget = true })
		also(c, "elsewhere", func(r *settings.Route) { r.NoBudget, r.Upstream = true, target(t, "http://other.example") })
	})
	without, elsewhere := p.now.All[0], p.now.All[1]
	state := p.now.DefaultRoute.UpstreamState
	if p.now.DefaultRoute.RetryBudget() != state.RetryBudget || state.RetryBudget == nil || without.RetryBudget() != nil {
		t.Error("the budget of a route is not that of its upstream, or one without has one")
	}
	if !p.now.Budgeted[state] || p.now.Budgeted[elsewhere.UpstreamState] || len(p.now.Budgeted) != 1 {
		t.Errorf("%d budgets are used", len(p.now.Budgeted))
	}
}

// Whoever shares budgets is asked when a retry would need a token.
func TestASharedBudgetAsks(t *testing.T) {
	for _, shared := range []bool{true, false} {
		asked := 0
		p := start(t, func(c *settings.Config) {
			c.Default.NoBudget, c.Default.Budget = false, budget.Config{Burst: 5}
			if shared {
				c.BudgetWanted = func() { asked++ }
			}
		})
		b := p.now.DefaultRoute.RetryBudget()
		if shared {
			b.ApplyGrant(p.Clock.Elapsed(), 2, 1)
		}
		for range 5 {
			b.TryRetry(p.Clock.Elapsed())
		}
		if got := asked > 0; got != shared {
			t.Errorf("shared %v: asked %d times", shared, asked)
		}
	}
}

func TestUpstreamsAreListedOnce(t *testing.T) {
	p := start(t, func(c *settings.Config) {
		also(c, "same", nil)
		also(c, "other", func(r *settings.Route) { r.Upstream = target(t, "http://other.example") })
		c.Default.Fallbacks = []settings.Fallback{{Upstream: target(t, "http://spare.example")}}
	})
	var got []string
	for _, u := range p.now.Upstreams() {
		got = append(got, u.Pool.Target().Host)
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"other.example", "spare.example", "upstream.example"}) {
		t.Error(got)
	}
}
