package request_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/breaker"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/attempt"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/clock"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// said is a response with the headers given, each a line.
func said(t *testing.T, status int, lines ...string) *http1.Response {
	t.Helper()
	text := fmt.Sprintf("HTTP/1.1 %d X\r\n%s\r\n", status, strings.Join(append(lines, ""), "\r\n"))
	r := &http1.Response{}
	if _, err := r.Parse([]byte(text), http1.Limits{HeaderBytes: 1 << 16, Headers: 100}, []byte("GET")); err != nil {
		t.Fatal(err)
	}
	return r
}

// begun is an attempt that began at a time.
func begun(at clock.Instant) *attempt.Attempt {
	a := new(attempt.Attempt)
	a.Begin(1, at, nil, attempt.Options{})
	return a
}

// notDialled is one that got no connection because of err.
func notDialled(at clock.Instant, err error) *attempt.Attempt {
	a := begun(at)
	a.DialFailed(err)
	return a
}

func retriesOn(t *testing.T, on string) func(c *settings.Config) {
	rules, err := policy.ParseRetryOn(on)
	if err != nil {
		t.Fatal(err)
	}
	return func(c *settings.Config) { c.Default.Policy.RetryOn = rules }
}

func TestWhatAResponseSaysOfARetry(t *testing.T) {
	const s = time.Second
	for name, tc := range map[string]struct {
		on     string
		status int
		lines  []string
		good   bool
		wait   time.Duration // -1: none asked for
		advice policy.Advice
		final  bool
	}{
		"a success":                    {"5xx,429", 200, nil, true, -1, policy.NoAdvice, false},
		"a success that asks for time": {"5xx,429", 200, []string{"Retry-After: 3"}, true, -1, policy.NoAdvice, false},
		"a failure":                    {"5xx,429", 503, nil, false, -1, policy.NoAdvice, false},
		"one that is no failure here":  {"429", 503, nil, true, -1, policy.NoAdvice, false},
		"a wait":                       {"5xx", 503, []string{"Retry-After: 3"}, false, 3 * s, policy.NoAdvice, false},
		"a date":                       {"5xx", 503, []string{"Date: Sun, 01 Mar 2026 12:00:00 GMT", "Retry-After: Sun, 01 Mar 2026 12:00:09 GMT"}, false, 9 * s, policy.NoAdvice, false},
		"milliseconds":                 {"429", 429, []string{"Retry-After-Ms: 1500"}, false, 1500 * time.Millisecond, policy.NoAdvice, false},
		"a limit that is renewed":      {"429", 429, []string{"X-Ratelimit-Remaining-Requests: 0", "X-Ratelimit-Reset-Requests: 4s"}, false, 4 * s, policy.NoAdvice, false},
		"the same of no rate limit":    {"5xx", 503, []string{"X-Ratelimit-Remaining-Requests: 0", "X-Ratelimit-Reset-Requests: 4s"}, false, 4 * s, policy.NoAdvice, false},
		"asked for":                    {"5xx", 503, []string{"X-Should-Retry: true"}, false, -1, policy.AdvisesRetry, false},
		"asked not to":                 {"5xx", 503, []string{"X-Should-Retry: false"}, false, -1, policy.AdvisesNoRetry, false},
		"an inner proxy gave up":       {"5xx", 503, []string{"X-Retryproxy-Reason: deadline"}, false, -1, policy.NoAdvice, true},
		"by its header":                {"retriable-header:X-Again", 200, []string{"X-Again: 1"}, false, -1, policy.NoAdvice, false},
		"without its header":           {"retriable-header:X-Again", 200, nil, true, -1, policy.NoAdvice, false},
	} {
		c := begin(t, get(), retriesOn(t, tc.on))
		var a policy.Result
		c.StatusOf(&a, said(t, tc.status, tc.lines...))
		wait := time.Duration(-1)
		if a.HasRetryAfter {
			wait = a.RetryAfter
		}
		if name == "the same of no rate limit" {
			tc.wait = wait // whether it says so is package retryafter's
		}
		if a.Cause != policy.CauseStatus || a.Status != tc.status || wait != tc.wait || a.Advice != tc.advice || a.Final != tc.final {
			t.Errorf("%s: %+v", name, a)
		}
		if got := c.Good(&a); got != tc.good {
			t.Errorf("%s: good %v", name, got)
		}
	}
	c := begin(t, get(), nil)
	if c.Good(&policy.Result{Cause: policy.CauseReset}) {
		t.Error("no response is a good one")
	}
}

// A response can count as one with another status, as an event of a stream does.
func TestAResponseThatCountsAsAnother(t *testing.T) {
	c := begin(t, get(), nil)
	var a policy.Result
	c.StatusAs(&a, said(t, 200, "Retry-After: 3"), 529)
	if a.Status != 529 || a.RetryAfter != 3*time.Second || c.Good(&a) {
		t.Errorf("%+v", a)
	}
}

func TestAnIdleTimeoutIsNoAnswerToOurRequest(t *testing.T) {
	closing := []string{"Connection: close"}
	for name, tc := range map[string]struct {
		status int
		lines  []string
		reused bool
		method string
		want   bool
	}{
		"one":                  {408, closing, true, "GET", true},
		"a new connection":     {408, closing, false, "GET", false},
		"it stays open":        {408, []string{"Content-Length: 0"}, true, "GET", false},
		"another status":       {400, closing, true, "GET", false},
		"it may not run twice": {408, closing, true, "POST", false},
	} {
		c := begin(t, message(tc.method, "/a"), nil)
		if got := c.IsIdleTimeout408(said(t, tc.status, tc.lines...), tc.reused); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// URLs are told apart by method and path; zero would mean that it is not known.
func TestWhichRequestsHaveOneURL(t *testing.T) {
	key := func(method, target string) uint32 { return begin(t, message(method, target), nil).UrlKey() }
	same := key("GET", "/a")
	if same == 0 || key("GET", "/a?b") != same || key("GET", "/a?") != same {
		t.Error("the query counts, or nothing does")
	}
	if key("PUT", "/a") == same || key("GET", "/b") == same || key("GET", "/A") == same {
		t.Error("different URLs are one")
	}
}

// Clients are told apart, so that one alone is no evidence.
func TestClientsAreToldApart(t *testing.T) {
	of := func(c *requesttest.Client) uint32 { return c.ClientKey() }
	one, two := begin(t, get(), nil), begin(t, get(), nil)
	if first, again, other := of(one), of(one), of(two); first != again || first == other {
		t.Error("two clients are one, or one is two")
	}
}

// A dial that ended with the client's own deadline shows nothing, unless it lasted long enough.
func TestADialThatTheClientCutShort(t *testing.T) {
	lost := &upstream.DialError{Kind: upstream.KindTimeout, Addr: "a", Err: errors.New("timeout")}
	for name, tc := range map[string]struct {
		lines    []string
		began    time.Duration // of the dial
		dialled  bool
		at       time.Duration
		cutShort bool
	}{
		"by the client":          {[]string{"X-Request-Timeout: 5"}, 4500 * time.Millisecond, false, 5 * time.Second, true},
		"it had a second":        {[]string{"X-Request-Timeout: 5"}, 4 * time.Second, false, 5 * time.Second, false},
		"not by the client":      {nil, 4500 * time.Millisecond, false, 5 * time.Second, false},
		"there was a connection": {[]string{"X-Request-Timeout: 5"}, 4500 * time.Millisecond, true, 5 * time.Second, false},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := begin(t, get(tc.lines...), nil)
			time.Sleep(tc.began)
			a := begun(c.Time.Now())
			if !tc.dialled {
				a = notDialled(c.Time.Now(), lost)
			}
			time.Sleep(tc.at - tc.began)
			c.Time.Tick()
			if got := c.CutDialShort(a); got != tc.cutShort {
				t.Errorf("%v", got)
			}
		}))
	}
}

// pausing shares the pauses of a route of up to 20 s.
func pausing(c *settings.Config) {
	c.Default.RateLimitPause = settings.RateLimitPause{SharedBy: admission.Sharing{Header: "X-Key"}, Max: 20 * time.Second}
}

func TestWhichResponsesPauseARateLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		a      policy.Result
		key    string
		change func(c *settings.Config)
		want   time.Duration
	}{
		"a 429":                  {policy.Result{Status: 429, HasRetryAfter: true, RetryAfter: 5 * time.Second}, "X-Key: k", pausing, 5 * time.Second},
		"the longest":            {policy.Result{Status: 429, HasRetryAfter: true, RetryAfter: 20 * time.Second}, "X-Key: k", pausing, 20 * time.Second},
		"too long":               {policy.Result{Status: 429, HasRetryAfter: true, RetryAfter: 20*time.Second + 1}, "X-Key: k", pausing, 0},
		"another status":         {policy.Result{Status: 503, HasRetryAfter: true, RetryAfter: 5 * time.Second}, "X-Key: k", pausing, 0},
		"no wait":                {policy.Result{Status: 429, RetryAfter: 5 * time.Second}, "X-Key: k", pausing, 0},
		"for itself":             {policy.Result{Status: 429, HasRetryAfter: true, RetryAfter: 5 * time.Second}, "X-Other: k", pausing, 0},
		"a route without pauses": {policy.Result{Status: 429, HasRetryAfter: true, RetryAfter: 5 * time.Second}, "X-Key: k", nil, 0},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			var told []time.Duration
			c := begin(t, get(tc.key), func(s *settings.Config) {
				if tc.change != nil {
					tc.change(s)
				}
				s.RateLimitPauseBegan = func(_ uint64, lasts time.Duration) { told = append(told, lasts) }
			})
			if c.PauseLeft(c.Time.Now()) != 0 {
				t.Error("it pauses before")
			}
			c.StartPause(&tc.a)
			c.StartPause(&tc.a) // of a request that was sent at the same time
			if got := c.PauseLeft(c.Time.Now()); got != tc.want {
				t.Errorf("pauses for %v, want %v", got, tc.want)
			}
			want := []time.Duration{tc.want}
			if tc.want == 0 {
				want = nil
			}
			if !slices.Equal(told, want) {
				t.Errorf("others hear of %v", told)
			}
			time.Sleep(2 * time.Second)
			if got := c.PauseLeft(c.Time.Now()); got != max(tc.want-2*time.Second, 0) {
				t.Errorf("later %v are left", got)
			}
			time.Sleep(time.Minute)
			if got := c.PauseLeft(c.Time.Now()); got != 0 {
				t.Errorf("in the end %v are left", got)
			}
		}))
	}
}

// Another process may allow longer pauses; a route does not keep those.
func TestAPauseOfAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, get("X-Key: k"), pausing)
		key, _ := c.Route.PauseKey(c.HTTP, nil)
		now := c.Process.Clock.Elapsed()
		c.Process.RateLimitPauses.Begin(key, now+time.Minute, now)
		if got := c.PauseLeft(c.Time.Now()); got != 0 {
			t.Errorf("%v", got)
		}
		time.Sleep(45 * time.Second)
		if got := c.PauseLeft(c.Time.Now()); got != 15*time.Second {
			t.Errorf("%v", got)
		}
	})
}

func TestWhichWaitsTheClientMustDecideOn(t *testing.T) {
	for name, tc := range map[string]struct {
		cause policy.Cause
		wait  time.Duration // -1: none
		max   time.Duration
		want  bool
	}{
		"too long": {policy.CauseStatus, 21 * time.Second, 20 * time.Second, true}, "as long as it may": {policy.CauseStatus, 20 * time.Second, 20 * time.Second, false},
		"any": {policy.CauseStatus, time.Hour, 0, false}, "none": {policy.CauseStatus, -1, 20 * time.Second, false}, "no response": {policy.CauseReset, time.Hour, time.Second, false},
	} {
		c := begin(t, get(), func(c *settings.Config) { c.Default.RateLimitPause.Max = tc.max })
		if got := c.PauseTooLong(&policy.Result{Cause: tc.cause, HasRetryAfter: tc.wait >= 0, RetryAfter: tc.wait}); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A retry waits in the queue of an upstream whose breaker is open, and only there.
func TestWhereARetryWaits(t *testing.T) {
	for _, failFast := range []bool{false, true} {
		c := begin(t, get(), func(c *settings.Config) { c.Default.Guard, c.Default.FailFast = breaker.Options{After: 1}, failFast })
		if c.RetryWaitsInQueue() {
			t.Error("it waits while all is well")
		}
		guard, now := c.Route.UpstreamState.Admission.Guard, c.Process.Clock.Elapsed()
		for range 3 {
			if p, v := guard.Acquire(now, breaker.Request{}); v == breaker.VerdictGo {
				guard.Release(p, now, breaker.AttemptEnd{Kind: breaker.Refused})
			}
		}
		if guard.State().Breaker == breaker.Closed {
			t.Fatal("the breaker is closed")
		}
		if got := c.RetryWaitsInQueue(); got == failFast {
			t.Errorf("failing fast %v: %v", failFast, got)
		}
	}
}

// An account that is used up is left out for others of it, until its time or until it works.
func TestAnAccountThatIsUsedUp(t *testing.T) {
	for name, tc := range map[string]struct {
		a    policy.Result
		left time.Duration
	}{
		"it says when it is renewed": {policy.Result{HasRetryAfter: true, RetryAfter: 5 * time.Minute}, 5 * time.Minute},
		"it does not":                {policy.Result{RetryAfter: 5 * time.Minute}, time.Minute},
	} {
		t.Run(name, bubble(func(t *testing.T) {
			c := begin(t, get("Authorization: a"), withFallback(t))
			now := func() clock.Instant { return c.Time.Tick() }
			if c.AccountLeft(c.Route, now()) != 0 {
				t.Error("it is left out before")
			}
			c.AccountWorks() // nothing to end
			c.AccountUsedUp(&tc.a)
			if got := c.AccountLeft(c.Route, now()); got != tc.left {
				t.Errorf("left out for %v, want %v", got, tc.left)
			}
			if got := c.AccountLeft(c.Route.FallbackRoutes[0], now()); got != 0 {
				t.Errorf("at another upstream for %v", got)
			}
			c.AccountWorks()
			if got := c.AccountLeft(c.Route, now()); got != 0 {
				t.Errorf("it works, and is left out for %v", got)
			}
			c.Dest = c.Route.FallbackRoutes[0]
			c.AccountUsedUp(&tc.a)
			if got := c.AccountLeft(c.Route.FallbackRoutes[0], now()); got != tc.left || c.AccountLeft(c.Route, now()) != 0 {
				t.Errorf("the account of the fallback is left out for %v", got)
			}
		}))
	}
}
