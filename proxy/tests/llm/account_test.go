package llm

import (
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/forward"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// ownKey lets the route send a key of its own to a model's API.
func ownKey(c *proxy.Config) {
	c.Default.ModelAPI = true
	c.Default.Forward.Changes = forward.NewHeaderChanges([]http1.Header{http1.NewHeader("X-Api-Key", "k")}, nil)
}

func model(c *proxy.Config) { c.Default.ModelAPI = true }

// A response that says that the account is used up goes to the fallback, whatever its status and its
// method, and the next requests are not sent to the account.
func TestAUsedUpAccountFallsBack(t *testing.T) {
	credit := vendorBody(t, "anthropic_credit_balance")
	const revoked = `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`
	const smaller = `{"error":{"message":"This request requires more credits, or fewer max_tokens.","code":402}}`
	for name, tc := range map[string]struct {
		response string
		set      func(c *proxy.Config)
		falls    bool // this request
		leaves   bool // the next ones
	}{
		"Anthropic's 400":                {peers.ResponseWithBody(400, credit, peers.AsJSON), nil, true, true},
		"a 429":                          {peers.ResponseWithBody(429, vendorBody(t, "openai_insufficient_quota"), peers.AsJSON), nil, true, true},
		"a 500 of a POST":                {peers.ResponseWithBody(500, vendorBody(t, "openai_insufficient_quota"), peers.AsJSON), nil, true, true},
		"a 403":                          {peers.ResponseWithBody(403, `{"error":{"code":"AllocationQuota.FreeTierOnly"}}`, peers.AsJSON), nil, true, true},
		"chunked":                        {"HTTP/1.1 400 X\r\n" + peers.AsJSON + "\r\nTransfer-Encoding: chunked\r\n\r\n14\r\n{\"message\":\"Credit b\r\n14\r\nalance is too low.\"}\r\n0\r\n\r\n", nil, true, true},
		"a 402 of a model":               {peers.ResponseWithBody(402, `{"error":"pay"}`, peers.AsJSON), model, true, true},
		"a 402 without a body":           {peers.RawResponse(402), model, true, true},
		"a 402 for a large request":      {peers.ResponseWithBody(402, smaller, peers.AsJSON), model, true, false},
		"a 402 of another API":           {peers.ResponseWithBody(402, `{"error":"card declined"}`, peers.AsJSON), nil, false, false},
		"a revoked key of ours":          {peers.ResponseWithBody(401, revoked, peers.AsJSON), ownKey, true, true},
		"a closed account":               {peers.ResponseWithBody(400, `{"error":{"message":"This organization has been disabled."}}`, peers.AsJSON), ownKey, true, true},
		"a 401 of another kind":          {peers.ResponseWithBody(401, `{"error":"missing scope"}`, peers.AsJSON), ownKey, true, false},
		"a key of the client's":          {peers.ResponseWithBody(401, revoked, peers.AsJSON), model, false, false},
		"another 400":                    {peers.ResponseWithBody(400, `{"error":{"type":"invalid_request_error","message":"max_tokens is missing"}}`, peers.AsJSON), ownKey, false, false},
		"a 404":                          {peers.RawResponse(404), ownKey, false, false},
		"a 401 for a permission":         {peers.ResponseWithBody(401, `{"error":{"message":"You have insufficient permissions for this operation."}}`, peers.AsJSON), ownKey, true, false},
		"a 401 without a body":           {peers.RawResponse(401), ownKey, true, true},
		"a 401 of no known kind":         {peers.ResponseWithBody(401, `{"message":"Unauthorized. Access token is missing."}`, peers.AsJSON), ownKey, true, true},
		"in words of no known kind":      {peers.ResponseWithBody(412, `{"error":{"message":"Account a is suspended, possibly due to reaching the monthly spending limit."}}`, peers.AsJSON), nil, true, true},
		"such words beside a wait":       {peers.ResponseWithBody(403, `{"error":{"message":"The balance is exhausted."}}`, peers.AsJSON, "Retry-After: 5"), nil, false, false},
		"JSON by its bytes":              {peers.ResponseWithBody(400, credit, "Content-Type: text/html"), nil, true, true},
		"signs in what is no error text": {peers.ResponseWithBody(400, credit, "Content-Type: application/pdf"), nil, false, false},
		"signs in markup":                {peers.ResponseWithBody(400, "<p>"+credit, "Content-Type: text/html"), nil, false, false},
		"signs in a success":             {peers.ResponseWithBody(200, credit, peers.AsJSON), nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemoryWithFallback(t, peers.Script(tc.response), peers.Script(peers.FallbackOK), func(c *proxy.Config) {
				c.Default.Policy.MaxRetries = 2
				if tc.set != nil {
					tc.set(c)
				}
			}, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
				for i := range 3 {
					status, body := statusAndBody(t, tc.response)
					if strings.Contains(tc.response, "chunked") {
						body = "*"
					}
					if tc.falls {
						status, body = 200, "spare"
					}
					res := m.Client().Send(peers.PostABC).Want(status, body)
					if o := m.Seen.Outcome(t, i); tc.falls && (o != policy.OutcomeFallback || res.Header.Get("X-Retryproxy-Reason") != "quota_exhausted") {
						t.Errorf("%v %v", o, res.Header)
					}
				}
				want := 3
				if tc.leaves {
					want = 1
				}
				if n := m.Up.Sends(); n != want {
					t.Errorf("%d requests to the account, want %d", n, want)
				}
			})
		})
	}
}

// The account is left out until its reset, then tried by one request, and used again if it works.
func TestAUsedUpAccountIsTriedAfterItsReset(t *testing.T) {
	spent := peers.ResponseWithBody(429, vendorBody(t, "openai_insufficient_quota"), peers.AsJSON)
	withReset := peers.ResponseWithBody(400, vendorBody(t, "anthropic_credit_balance"), peers.AsJSON, "Retry-After: 7200")
	inWords := peers.ResponseWithBody(403, `{"statusCode":403,"message":"Out of call volume quota. Quota will be replenished in 02:00:00."}`, peers.AsJSON)
	for name, tc := range map[string]struct {
		response string
		out      time.Duration
	}{
		"without a reset":   {spent, time.Minute},
		"with one":          {withReset, 2 * time.Hour},
		"with one in words": {inWords, 2 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			proxytest.InMemoryWithFallback(t, peers.Script(tc.response, peers.OK200), peers.Script(peers.FallbackOK), nil, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
				m.Client().Send(peers.Get("/")).Want(200, "spare")
				time.Sleep(tc.out - time.Second)
				m.Client().Send(peers.Get("/")).Want(200, "spare")
				time.Sleep(2 * time.Second)
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				if n := s.Sends(); n != 2 {
					t.Errorf("%d requests to the fallback", n)
				}
			})
		})
	}
}

// One client's account says nothing about another's.
func TestAClientsAccountIsItsOwn(t *testing.T) {
	spent := peers.ResponseWithBody(429, vendorBody(t, "openai_insufficient_quota"), peers.AsJSON)
	proxytest.InMemoryWithFallback(t, peers.Script(spent, peers.OK200), peers.Script(peers.FallbackOK), model, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		with := func(key string) string {
			return "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer " + key + "\r\n\r\n"
		}
		m.Client().Send(with("one")).Want(200, "spare")
		m.Client().Send(with("two")).Want(200, "ok")
		m.Client().Send(with("one")).Want(200, "spare")
	})
}

// If the accounts of the upstream and of its fallback are both used up, the client learns it, and
// neither gets another request.
func TestAUsedUpFallbackIsLeftOutToo(t *testing.T) {
	quota := vendorBody(t, "openai_insufficient_quota")
	spent, other := peers.ResponseWithBody(429, quota, peers.AsJSON), peers.ResponseWithBody(400, vendorBody(t, "anthropic_credit_balance"), peers.AsJSON)
	proxytest.InMemoryWithFallback(t, peers.Script(spent), peers.Script(other), nil, func(t *testing.T, m *proxytest.Memory, s *peers.FallbackServer) {
		m.Client().Send(peers.PostABC).Want(429, quota)
		res := m.Client().Send(peers.PostABC).Want(429, "*")
		if h := res.Header; h.Get("X-Retryproxy-Reason") != "quota_exhausted" || h.Get("Retry-After") != "60" || h.Get("X-Should-Retry") != "" {
			t.Errorf("%v", h)
		}
		if m.Up.Sends() != 1 || s.Sends() != 1 {
			t.Errorf("%d and %d requests", m.Up.Sends(), s.Sends())
		}
		if o := m.Seen.Outcome(t, 1); o != policy.OutcomeGaveUpQuotaExhausted {
			t.Errorf("%v", o)
		}
	})
}

// Without a fallback nothing is left out: the upstream itself says what is wrong.
func TestWithoutAFallbackAnAccountIsAsked(t *testing.T) {
	spent := peers.ResponseWithBody(429, vendorBody(t, "openai_insufficient_quota"), peers.AsJSON)
	p := proxytest.Start(t, peers.StartUpstream(t, peers.Script(spent, peers.OK200)), model)
	p.Dial().Send(peers.Get("/")).Want(429, "*")
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
}
