package retry

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/retryafter"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// exampleDate is the Date of the examples: their moments are 7 seconds later, or a fraction more.
const exampleDate = "Sun, 01 Mar 2026 12:00:00 GMT"

// examples are a response's headers for each row of the table, and the wait that they ask for.
var examples = map[string]struct {
	headers string
	want    time.Duration
}{
	"Retry-After":                         {"Retry-After: 7.5", 7500 * time.Millisecond},
	"Retry-After-Ms":                      {"retry-after-ms: 7250", 7250 * time.Millisecond},
	"X-Ms-Retry-After-Ms":                 {"x-ms-retry-after-ms: 7250", 7250 * time.Millisecond},
	"X-Amz-Retry-After":                   {"x-amz-retry-after: 7250", 7250 * time.Millisecond},
	"X-RateLimit-Retry-After":             {"X-RateLimit-Retry-After: 7", 7 * time.Second},
	"*-Retry-After-Ms":                    {"llm_provider-retry-after-ms: 7250", 7250 * time.Millisecond},
	"*-Retry-After":                       {"llm_provider-retry-after: 7", 7 * time.Second},
	"*-Retry-After-Seconds":               {"X-Rate-Limit-Retry-After-Seconds: 7", 7 * time.Second},
	"X-RateLimit-TimeRemaining":           {"x-ratelimit-timeremaining: 7", 7 * time.Second},
	"X-Codex-*-Reset-After-Seconds":       {"x-codex-primary-used-percent: 100\nx-codex-primary-reset-after-seconds: 7", 7 * time.Second},
	"RateLimit":                           {`RateLimit: "a";r=0;t=7`, 7 * time.Second},
	"RateLimit-Reset":                     {"RateLimit-Remaining: 0\nRateLimit-Reset: 7", 7 * time.Second},
	"X-RateLimit-Reset":                   {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366407", 7 * time.Second},
	"X-Rate-Limit-Reset":                  {"x-rate-limit-remaining: 0\nx-rate-limit-reset: 1772366407", 7 * time.Second},
	"X-RateLimit-Reset-After":             {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset-After: 7.5", 7500 * time.Millisecond},
	"X-RateLimit-Reset-*":                 {"x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 7.25s", 7250 * time.Millisecond},
	"X-RateLimit-*-Reset":                 {"X-RateLimit-Requests-Remaining: 0\nX-RateLimit-Requests-Reset: 1772366407500", 7500 * time.Millisecond},
	"Anthropic-RateLimit-Unified-Reset":   {"anthropic-ratelimit-unified-status: rejected\nanthropic-ratelimit-unified-reset: 1772366407", 7 * time.Second},
	"Anthropic-RateLimit-Unified-*-Reset": {"anthropic-ratelimit-unified-5h-status: rejected\nanthropic-ratelimit-unified-5h-reset: 1772366407", 7 * time.Second},
	"Anthropic-RateLimit-*-Reset":         {"anthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2026-03-01T12:00:07Z", 7 * time.Second},
}

// A retry of a POST is sent when the upstream asks for it, in whatever header: not earlier, and
// later by at most the jitter.
func TestEachHeaderThatTellsAWaitIsObeyed(t *testing.T) {
	for _, row := range retryafter.Rows() {
		t.Run(strings.ReplaceAll(row.Header, "*", "any"), func(t *testing.T) {
			example, ok := examples[row.Header]
			if !ok {
				t.Fatalf("no example of %s", row.Header)
			}
			up := &peers.Timed{First: []string{peers.RawResponse(429, append(strings.Split(example.headers, "\n"), "Date: "+exampleDate)...)}}
			proxytest.InMemory(t, up.Handle, nil, func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").Want(200, "ok")
				if len(up.At) != 2 {
					t.Fatalf("%d attempts", len(up.At))
				}
				if d := up.At[1].Sub(up.At[0]); d < example.want || d > example.want+2*time.Millisecond {
					t.Errorf("retried after %v, want %v", d, example.want)
				}
			})
		})
	}
}

func TestTheStrictestHeaderDecides(t *testing.T) {
	for name, tc := range map[string]struct {
		status  int
		headers string
		want    time.Duration
	}{
		"longest of two orders":                 {429, "Retry-After: 3\nRetry-After-Ms: 2900", 3 * time.Second},
		"longest of two rate limits":            {429, "X-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 4s\nX-RateLimit-Remaining-Requests: 0\nX-RateLimit-Reset-Requests: 1s", 4 * time.Second},
		"an order before a rate limit":          {429, "Retry-After: 3\nX-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 9s", 3 * time.Second},
		"a rate limit and a bad order":          {503, "Retry-After: soon\nX-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 9s", 9 * time.Second},
		"a rate limit does not explain a 500":   {500, "X-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Reset-Tokens: 9s", 0},
		"an order does with a 500":              {500, "retry-after-ms: 900", 900 * time.Millisecond},
		"a hostile one is as if it was not so":  {503, "retry-after-ms: " + strings.Repeat("9", 100), 0},
		"a negative one is as if it was not so": {503, "retry-after-ms: -5\nx-ms-retry-after-ms: 0x10", 0},
	} {
		t.Run(name, func(t *testing.T) {
			up := &peers.Timed{First: []string{peers.RawResponse(tc.status, strings.Split(tc.headers, "\n")...)}}
			proxytest.InMemory(t, up.Handle, nil, func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				if d := up.At[1].Sub(up.At[0]); d < tc.want || d > tc.want+2*time.Millisecond {
					t.Errorf("retried after %v, want %v", d, tc.want)
				}
			})
		})
	}
}

// A response that asks for more than the time left goes to the client at once, unchanged.
func TestAWaitBeyondTheDeadlineGoesToTheClient(t *testing.T) {
	up := peers.StartUpstream(t, peers.Script(peers.RawResponse(429, "retry-after-ms: 31000"), peers.OK200))
	p := proxytest.Start(t, up, nil)
	res := p.Dial().Send(peers.Get("/")).Want(429, "wait")
	if res.Header.Get("retry-after-ms") != "31000" || p.Seen.Outcome(t, 0) != policy.GaveUp(policy.ReasonRetryAfterTooLong) || up.Sends() != 1 {
		t.Errorf("%v, %v, %d sent", res.Header, p.Seen.Outcomes, up.Sends())
	}
}

// Over real connections, each row waits a little.
func TestAShortWaitOverRealConnections(t *testing.T) {
	up := &peers.Timed{First: []string{peers.RawResponse(503, "retry-after-ms: 120"), peers.RawResponse(503, "X-Amz-Retry-After: 60"), peers.RawResponse(429, "x-ratelimit-remaining-tokens: 0", "x-ratelimit-reset-tokens: 88ms")}}
	p := proxytest.Start(t, peers.StartUpstream(t, up.Handle), nil)
	p.Dial().Send(peers.Get("/")).Want(200, "ok")
	for i, want := range []time.Duration{120 * time.Millisecond, 60 * time.Millisecond, 88 * time.Millisecond} {
		if d := up.At[i+1].Sub(up.At[i]); d < want || d > want+5*time.Second {
			t.Errorf("retry %d after %v, want %v", i+1, d, want)
		}
	}
}

func TestXShouldRetry(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"
	const keyed = "POST / HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n"
	for name, tc := range map[string]struct {
		request, header string
		status          int
		outcome         policy.Outcome
		retry           policy.Reason // none: not retried
	}{
		"false ends retries of a 503":       {peers.Get("/"), "false", 503, policy.OutcomeGaveUpAskedNotToRetry, 0},
		"false ends retries of a 429":       {post, "false", 429, policy.OutcomeGaveUpAskedNotToRetry, 0},
		"false changes nothing of a 404":    {peers.Get("/"), "false", 404, policy.OutcomeSuccess, 0},
		"true allows one of a 409":          {peers.Get("/"), "true", 409, policy.OutcomeRecovered, policy.ReasonAskedToRetry},
		"true allows one of a 501":          {peers.Get("/"), "true", 501, policy.OutcomeRecovered, policy.ReasonAskedToRetry},
		"true with a key":                   {keyed, "true", 409, policy.OutcomeRecovered, policy.ReasonAskedToRetry},
		"true without a key":                {post, "true", 409, policy.OutcomeGaveUpNotIdempotent, 0},
		"true without a key of a 503":       {post, "true", 503, policy.OutcomeGaveUpNotIdempotent, 0},
		"true of a listed status":           {peers.Get("/"), "true", 503, policy.OutcomeRecovered, policy.ReasonStatus503},
		"anything else is none":             {peers.Get("/"), "yes", 409, policy.OutcomeSuccess, 0},
		"anything else ends no retries":     {peers.Get("/"), "0", 503, policy.OutcomeRecovered, policy.ReasonStatus503},
		"true of a success is not read":     {peers.Get("/"), "true", 200, policy.OutcomeSuccess, 0},
		"true of a redirect is not obeyed":  {peers.Get("/"), "true", 302, policy.OutcomeSuccess, 0},
		"case of the value does not matter": {peers.Get("/"), "True", 409, policy.OutcomeRecovered, policy.ReasonAskedToRetry},
	} {
		t.Run(name, func(t *testing.T) {
			up := peers.StartUpstream(t, peers.Script(peers.RawResponse(tc.status, "X-Should-Retry: "+tc.header), peers.OK200))
			p := proxytest.Start(t, up, nil)
			status, body := tc.status, "wait"
			if tc.retry != policy.ReasonNone {
				status, body = 200, "ok"
			}
			res := p.Dial().Send(tc.request).Want(status, body)
			if o := p.Seen.Outcome(t, 0); o != tc.outcome {
				t.Errorf("outcome %v, want %v", o, tc.outcome)
			}
			if reason := res.Header.Get("X-Retryproxy-Reason"); tc.outcome.GaveUp() && "gave_up_"+reason != tc.outcome.String() {
				t.Errorf("reason %q given to the client", reason)
			}
			var want []policy.Reason
			if tc.retry != policy.ReasonNone {
				want = append(want, tc.retry)
			}
			if !slices.Equal(p.Seen.Retries, want) {
				t.Errorf("retries for %v, want %v", p.Seen.Retries, want)
			}
		})
	}
}

// An excluded status is not retried, even if the upstream asks for it.
func TestAnExcludedStatusIsNotRetriedOnRequest(t *testing.T) {
	for _, setting := range []string{"5xx,429,!409", "connect-failure,reset", "none"} {
		up := peers.StartUpstream(t, peers.Script(peers.RawResponse(409, "X-Should-Retry: true"), peers.OK200))
		p := proxytest.Start(t, up, func(c *proxy.Config) {
			on, err := policy.ParseRetryOn(setting)
			if err != nil {
				t.Fatal(err)
			}
			c.Default.Policy.RetryOn = on
		})
		p.Dial().Send(peers.Get("/")).Want(409, "wait")
		if n := up.Sends(); n != 1 {
			t.Errorf("%s: %d sent", setting, n)
		}
	}
}

// A wish for retries ends with their limit.
func TestRetriesOnRequestAreLimited(t *testing.T) {
	up := peers.StartUpstream(t, peers.Script(peers.RawResponse(409, "X-Should-Retry: true")))
	p := proxytest.Start(t, up, nil)
	p.Dial().Send(peers.Get("/")).Want(409, "wait")
	if o := p.Seen.Outcome(t, 0); o != policy.GaveUp(policy.ReasonRetriesExhausted) || up.Sends() != 4 {
		t.Errorf("%v after %d", o, up.Sends())
	}
}

// A wait longer than any allowed one is left to the client, even if there would be time for it.
func TestALongWaitIsLeftToTheClient(t *testing.T) {
	for status, body := range map[int]string{429: "wait", 503: "wait"} {
		up := &peers.Timed{First: []string{peers.RawResponse(status, "Retry-After: 121")}}
		proxytest.InMemory(t, up.Handle, func(c *proxy.Config) {
			c.Default.RequestTimeout, c.Default.RateLimitPause.Max = time.Hour, 2*time.Minute
		}, func(t *testing.T, m *proxytest.Memory) {
			res := m.Client().Send(peers.Get("/")).Want(status, body)
			if res.Header.Get("X-Retryproxy-Reason") != "retry_after_too_long" || len(up.At) != 1 {
				t.Errorf("%d: %v, %d sent", status, res.Header, len(up.At))
			}
		})
	}
}

// GitHub refuses with 403 both what is not permitted and what exceeds a rate limit. With the word
// rate-limited, the second is retried like a 429, POST included, and no earlier than it asks.
func TestAForbiddenRateLimitIsRetried(t *testing.T) {
	for name, tc := range map[string]struct {
		headers string
		wait    time.Duration // 0: not retried
		retryOn string
	}{
		"nothing left":         {"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366407", 7 * time.Second, "rate-limited"},
		"Retry-After":          {"X-RateLimit-Remaining: 4999\nRetry-After: 7", 7 * time.Second, "5xx,rate-limited"},
		"no time of renewal":   {"X-RateLimit-Remaining: 0", time.Millisecond, "rate-limited"},
		"a refusal":            {"X-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1772366407", 0, "rate-limited"},
		"without the word":     {"X-RateLimit-Remaining: 0\nRetry-After: 7", 0, peers.UsualRetryOn},
		"the code is left out": {"Retry-After: 7", 0, "rate-limited,!403"},
	} {
		t.Run(name, func(t *testing.T) {
			up := &peers.Timed{First: []string{peers.RawResponse(403, append(strings.Split(tc.headers, "\n"), "Date: "+exampleDate)...)}}
			proxytest.InMemory(t, up.Handle, func(c *proxy.Config) {
				on, err := policy.ParseRetryOn(tc.retryOn)
				if err != nil {
					t.Fatal(err)
				}
				c.Default.Policy.RetryOn = on
			}, func(t *testing.T, m *proxytest.Memory) {
				if tc.wait == 0 {
					m.Client().Send(peers.PostABC).Want(403, "*")
					return
				}
				m.Client().Send(peers.PostABC).Want(200, "ok")
				if d := up.At[1].Sub(up.At[0]); d < tc.wait || d > tc.wait+2*time.Millisecond {
					t.Errorf("retried after %v, want %v", d, tc.wait)
				}
			})
		})
	}
}
