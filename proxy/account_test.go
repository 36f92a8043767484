package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// ownKey lets the route send a key of its own to a model's API.
func ownKey(c *Config) {
	c.Default.ModelAPI = true
	c.Default.Forward.Changes = forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-Api-Key", "k")}, nil)
}

func model(c *Config) { c.Default.ModelAPI = true }

// A response that says that the account is used up goes to the fallback, whatever its status and its
// method, and the next requests are not sent to the account.
func TestAUsedUpAccountFallsBack(t *testing.T) {
	credit := vendorBody(t, "anthropic_credit_balance")
	const revoked = `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`
	const smaller = `{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}`
	for name, tc := range map[string]struct {
		response string
		set      func(c *Config)
		falls    bool // this request
		leaves   bool // the next ones
	}{
		"Anthropic's 400":                {rawBody(400, credit, asJSON), nil, true, true},
		"a 429":                          {rawBody(429, vendorBody(t, "openai_insufficient_quota"), asJSON), nil, true, true},
		"a 500 of a POST":                {rawBody(500, vendorBody(t, "openai_insufficient_quota"), asJSON), nil, true, true},
		"a 403":                          {rawBody(403, `{"error":{"code":"AllocationQuota.FreeTierOnly"}}`, asJSON), nil, true, true},
		"chunked":                        {"HTTP/1.1 400 X\r\n" + asJSON + "\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"message\":\"Credit b\r\n14\r\nalance is too low.\"}\r\n0\r\n\r\n", nil, true, true},
		"a 402 of a model":               {rawBody(402, `{"error":"pay"}`, asJSON), model, true, true},
		"a 402 without a body":           {rawResponse(402), model, true, true},
		"a 402 for a large request":      {rawBody(402, smaller, asJSON), model, true, false},
		"a 402 of another API":           {rawBody(402, `{"error":"card declined"}`, asJSON), nil, false, false},
		"a revoked key of ours":          {rawBody(401, revoked, asJSON), ownKey, true, true},
		"a closed account":               {rawBody(400, `{"error":{"message":"This organization has been disabled."}}`, asJSON), ownKey, true, true},
		"a 401 of another kind":          {rawBody(401, `{"error":"missing scope"}`, asJSON), ownKey, true, false},
		"a key of the client's":          {rawBody(401, revoked, asJSON), model, false, false},
		"another 400":                    {rawBody(400, `{"error":{"type":"invalid_request_error","message":"max_tokens is missing"}}`, asJSON), ownKey, false, false},
		"a 404":                          {rawResponse(404), ownKey, false, false},
		"a 401 for a permission":         {rawBody(401, `{"error":{"message":"You have insufficient permissions for this operation."}}`, asJSON), ownKey, true, false},
		"a 401 without a body":           {rawResponse(401), ownKey, true, true},
		"a 401 of no known kind":         {rawBody(401, `{"message":"Unauthorized. Access token is missing."}`, asJSON), ownKey, true, true},
		"in words of no known kind":      {rawBody(412, `{"error":{"message":"Account a is suspended, possibly due to reaching the monthly spending limit."}}`, asJSON), nil, true, true},
		"such words beside a wait":       {rawBody(403, `{"error":{"message":"The balance is exhausted."}}`, asJSON, "Retry-After: 5"), nil, false, false},
		"JSON by its bytes":              {rawBody(400, credit, "Content-Type: text/html"), nil, true, true},
		"signs in what is no error text": {rawBody(400, credit, "Content-Type: application/pdf"), nil, false, false},
		"signs in markup":                {rawBody(400, "<p>"+credit, "Content-Type: text/html"), nil, false, false},
		"signs in a success":             {rawBody(200, credit, asJSON), nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inMemoryWithFallback(t, script(tc.response), script(fallbackOK), func(c *Config) {
				c.Default.Policy.MaxRetries = 2
				if tc.set != nil {
					tc.set(c)
				}
			}, func(t *testing.T, m *memory, s *fallbackServer) {
				for i := range 3 {
					status, body := statusAndBody(t, tc.response)
					if strings.Contains(tc.response, "chunked") {
						body = "*"
					}
					if tc.falls {
						status, body = 200, "spare"
					}
					res := m.client().send(postABC).want(status, body)
					if o := m.seen.outcome(t, i); tc.falls && (o != policy.OutcomeFallback || res.Header.Get("X-Retryproxy-Reason") != "quota_exhausted") {
						t.Errorf("%v %v", o, res.Header)
					}
				}
				want := 3
				if tc.leaves {
					want = 1
				}
				if n := m.up.sends(); n != want {
					t.Errorf("%d requests to the account, want %d", n, want)
				}
			})
		})
	}
}

// The account is left out until its reset, then tried by one request, and used again if it works.
func TestAUsedUpAccountIsTriedAfterItsReset(t *testing.T) {
	spent := rawBody(429, vendorBody(t, "openai_insufficient_quota"), asJSON)
	withReset := rawBody(400, vendorBody(t, "anthropic_credit_balance"), asJSON, "Retry-After: 7200")
	inWords := rawBody(403, `{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 02:00:00."}`, asJSON)
	for name, tc := range map[string]struct {
		response string
		out      time.Duration
	}{
		"without a reset":   {spent, time.Minute},
		"with one":          {withReset, 2 * time.Hour},
		"with one in words": {inWords, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			inMemoryWithFallback(t, script(tc.response, ok200), script(fallbackOK), nil, func(t *testing.T, m *memory, s *fallbackServer) {
				m.client().send(get("/")).want(200, "spare")
				time.Sleep(tc.out - time.Second)
				m.client().send(get("/")).want(200, "spare")
				time.Sleep(2 * time.Second)
				m.client().send(get("/")).want(200, "ok")
				m.client().send(get("/")).want(200, "ok")
				if n := s.sends(); n != 2 {
					t.Errorf("%d requests to the fallback", n)
				}
			})
		})
	}
}

// One client's account says nothing about another's.
func TestAClientsAccountIsItsOwn(t *testing.T) {
	spent := rawBody(429, vendorBody(t, "openai_insufficient_quota"), asJSON)
	inMemoryWithFallback(t, script(spent, ok200), script(fallbackOK), model, func(t *testing.T, m *memory, s *fallbackServer) {
		with := func(key string) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key + "\r\n\r\n"
		}
		m.client().send(with("one")).want(200, "spare")
		m.client().send(with("two")).want(200, "ok")
		m.client().send(with("one")).want(200, "spare")
	})
}

// If the accounts of the upstream and of its fallback are both used up, the client learns it, and
// neither gets another request.
func TestAUsedUpFallbackIsLeftOutToo(t *testing.T) {
	quota := vendorBody(t, "openai_insufficient_quota")
	spent, other := rawBody(429, quota, asJSON), rawBody(400, vendorBody(t, "anthropic_credit_balance"), asJSON)
	inMemoryWithFallback(t, script(spent), script(other), nil, func(t *testing.T, m *memory, s *fallbackServer) {
		m.client().send(postABC).want(429, quota)
		res := m.client().send(postABC).want(429, "*")
		if h := res.Header; h.Get("X-Retryproxy-Reason") != "quota_exhausted" || h.Get("Retry-After") != "60" || h.Get("X-Should-Retry") != "" {
			t.Errorf("%v", h)
		}
		if m.up.sends() != 1 || s.sends() != 1 {
			t.Errorf("%d and %d requests", m.up.sends(), s.sends())
		}
		if o := m.seen.outcome(t, 1); o != policy.OutcomeGaveUpQuotaExhausted {
			t.Errorf("%v", o)
		}
	})
}

// Without a fallback nothing is left out: the upstream itself says what is wrong.
func TestWithoutAFallbackAnAccountIsAsked(t *testing.T) {
	spent := rawBody(429, vendorBody(t, "openai_insufficient_quota"), asJSON)
	p := startProxy(t, startUpstream(t, script(spent, ok200)), model)
	p.dial().send(get("/")).want(429, "*")
	p.dial().send(get("/")).want(200, "ok")
}
