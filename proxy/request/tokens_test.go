package request_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/ratelimit"
	"github.com/retryproxy/retryproxy/policy/tokens"
	"github.com/retryproxy/retryproxy/proxy/admission"
	"github.com/retryproxy/retryproxy/proxy/internal/requesttest"
	"github.com/retryproxy/retryproxy/proxy/settings"
)

// limited gives the upstream a thousand tokens an hour.
func limited(c *settings.Config) {
	c.Default.RateLimit = admission.RateLimit{Tokens: ratelimit.Rate{Count: 1000, Per: time.Hour}}
}

// asks is a request for at most n tokens of output.
func asks(n int) string {
	body := fmt.Sprintf(`{"model":"m","max_tokens":%d}`, n)
	return message("POST", "/v1", fmt.Sprintf("Content-Length: %d", len(body))) + body
}

// take takes what the next attempt needs of the rate limit, and reports whether that was there.
func take(c *requesttest.Client) bool {
	_, ok := takeUse(c)
	return ok
}

func takeUse(c *requesttest.Client) (*admission.Use, bool) {
	use := c.Tokens.Expect()
	return use, c.Route.Terms.RateLimits.Common.TakeNow(c.Process.Clock.Elapsed(), use)
}

// room reports whether an attempt for n tokens could be sent, and takes nothing.
func room(c *requesttest.Client, n int64) bool {
	q, now := c.Route.Terms.RateLimits.Common, c.Process.Clock.Elapsed()
	use := admission.Use{Estimate: ratelimit.Estimate{Output: n}}
	ok := q.TakeNow(now, &use)
	if ok {
		q.GiveBack(now, &use)
	}
	return ok
}

func TestABodySaysWhatAnAttemptMayUse(t *testing.T) {
	c := begin(t, asks(700), limited)
	e := c.Tokens.Expect().Estimate
	if e.Output != 700 || e.Unbounded || e.Input <= 0 || e.Input > 100 {
		t.Errorf("%+v", e)
	}
	if e := begin(t, message("POST", "/v1", "Content-Length: 13")+`{"model":"m"}`, limited).Tokens.Expect().Estimate; !e.Unbounded || e.Output != 0 {
		t.Errorf("without a maximum %+v", e)
	}
	if e := begin(t, get(), limited).Tokens.Expect().Estimate; e != (ratelimit.Estimate{}) {
		t.Errorf("without a body %+v", e)
	}
}

// What an attempt takes comes back if no upstream got it, or rejected it, and is settled by what was used.
func TestWhatIsTakenOfALimitOfTokens(t *testing.T) {
	usage := []byte(`{"usage":{"prompt_tokens":10,"completion_tokens":90}}`)
	for name, tc := range map[string]struct {
		then   func(c *requesttest.Client)
		room   bool // for 600 more
		forAll bool // for 1000 more
	}{
		"running":  {func(c *requesttest.Client) {}, false, false},
		"not sent": {func(c *requesttest.Client) { c.Tokens.Unsent() }, true, true},
		"rejected": {func(c *requesttest.Client) { c.Tokens.Learn(said(t, 429), 429) }, true, true},
		"failed":   {func(c *requesttest.Client) { c.Tokens.Learn(said(t, 500), 500) }, false, false},
		"used less": {func(c *requesttest.Client) {
			c.Tokens.BeginUsage(false)
			c.Tokens.ReadUsage(usage)
			c.Tokens.EndUsage()
		}, true, false},
		"it does not say": {func(c *requesttest.Client) {
			c.Tokens.BeginUsage(false)
			c.Tokens.ReadUsage([]byte("{}"))
			c.Tokens.EndUsage()
		}, false, false},
	} {
		c := begin(t, asks(700), limited)
		if !take(c) {
			t.Fatalf("%s: there was not enough", name)
		}
		tc.then(c)
		if got, forAll := room(c, 600), room(c, 1000); got != tc.room || forAll != tc.forAll {
			t.Errorf("%s: room for 600: %v, for 1000: %v", name, got, forAll)
		}
	}
}

// What did not fit took nothing.
func TestWhatDoesNotFitIsNotTaken(t *testing.T) {
	c := begin(t, asks(700), limited)
	if !take(c) || take(c) {
		t.Fatal("700 of 1000 fit twice, or never")
	}
	c.Tokens.Unsent()
	if room(c, 600) {
		t.Error("the tokens of the attempt that runs were given back")
	}
}

func TestWhatAResponseSaysThatItUsed(t *testing.T) {
	const body = `{"usage":{"prompt_tokens":10,"completion_tokens":20}}`
	c := begin(t, asks(5), func(c *settings.Config) { limited(c); c.Default.CountTokens = true })
	if c.Tokens.ReadsUsage() || c.Tokens.EndUsage().Any() {
		t.Error("it reads before a response")
	}
	c.Tokens.ReadUsage([]byte(body))
	if c.Tokens.EndUsage().Any() {
		t.Error("it read what is no response")
	}
	c.Tokens.BeginUsage(false)
	if !c.Tokens.ReadsUsage() {
		t.Error("it does not read")
	}
	c.Tokens.ReadUsage([]byte(body[:20]))
	c.Tokens.ReadUsage([]byte(body[20:]))
	if got := c.Tokens.EndUsage(); got != (tokens.Count{Input: 10, Output: 20}) || c.Tokens.ReadsUsage() {
		t.Errorf("%+v", got)
	}
	if got := c.Tokens.EndUsage(); got.Any() {
		t.Errorf("counted twice: %+v", got)
	}
}

// What a response used that was thrown away is taken once.
func TestWhatALostResponseUsed(t *testing.T) {
	c := begin(t, asks(5), limited)
	c.Tokens.LoseUsage([]byte("data: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":20}}\n\n"))
	if got := c.Tokens.TakeLost(); got != (tokens.Count{Input: 10, Output: 20}) {
		t.Errorf("%+v", got)
	}
	if got := c.Tokens.TakeLost(); got.Any() {
		t.Errorf("taken twice: %+v", got)
	}
	c.Tokens.LoseUsage([]byte("data: {\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":20}}\n\n"))
	c.Next(asks(5))
	if got := c.Tokens.TakeLost(); got.Any() {
		t.Errorf("of the request before: %+v", got)
	}
}

// Whoever took the use of an attempt that is not sent gives it back, and nothing is left to settle.
func TestAUseThatWasGivenBack(t *testing.T) {
	c := begin(t, asks(700), limited)
	use, ok := takeUse(c)
	if !ok {
		t.Fatal("there was not enough")
	}
	c.Route.Terms.RateLimits.Common.GiveBack(c.Process.Clock.Elapsed(), use)
	if c.Tokens.Unsent(); use.IsCounted() || !room(c, 1000) {
		t.Error("it is not there again")
	}
}

// Most requests have nothing to do with tokens.
func TestARequestWithoutTokens(t *testing.T) {
	c := begin(t, asks(5), nil)
	if c.Tokens != nil {
		t.Fatal("it has")
	}
	c.Tokens.ReadUsage([]byte("{}"))
	if c.Tokens.Model() != nil || c.Tokens.ReadsUsage() {
		t.Error("something of nothing")
	}
	made := c.NeedTokens()
	if made == nil || c.NeedTokens() != made || made.Model() != nil {
		t.Error("none is made, or two are")
	}
}

// The limit that an upstream tells is learnt from its responses.
func TestALimitIsLearntFromResponses(t *testing.T) {
	learns := func(c *settings.Config) { c.Default.RateLimit = admission.RateLimit{Learn: true} }
	c := begin(t, asks(700), learns)
	if !take(c) {
		t.Fatal("nothing is known, and it does not fit")
	}
	c.Tokens.Learn(said(t, 200, "X-Ratelimit-Limit-Tokens: 1000", "X-Ratelimit-Remaining-Tokens: 300", "X-Ratelimit-Reset-Tokens: 60s"), 200)
	if room(c, 900) || !room(c, 100) {
		t.Errorf("room for 900: %v, for 100: %v", room(c, 900), room(c, 100))
	}
	fixed := begin(t, asks(100), limited)
	take(fixed)
	fixed.Tokens.Learn(said(t, 200, "X-Ratelimit-Limit-Tokens: 1000", "X-Ratelimit-Remaining-Tokens: 0", "X-Ratelimit-Reset-Tokens: 60s"), 200)
	if !room(fixed, 500) {
		t.Error("a limit that is set was learnt")
	}
}
