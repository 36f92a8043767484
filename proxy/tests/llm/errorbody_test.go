package llm

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/proxy"
	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/internal/peers"
	"github.com/retryproxy/retryproxy/proxy/internal/proxytest"
)

// vendorBody is a body of testdata of package apierror.
func vendorBody(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile("../../../policy/apierror/testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAWaitInAnErrorBodyIsObeyed(t *testing.T) {
	for name, tc := range map[string]struct {
		response string
		want     time.Duration
	}{
		"OpenAI":                      {peers.ResponseWithBody(429, vendorBody(t, "openai_rate_limit_seconds"), peers.AsJSON), 18642 * time.Millisecond},
		"Gemini":                      {peers.ResponseWithBody(429, vendorBody(t, "gemini_retry_info_alone"), peers.AsJSON), 34074824224},
		"Azure OpenAI":                {peers.ResponseWithBody(429, vendorBody(t, "azure_openai_call_rate"), peers.AsJSON), 6 * time.Second},
		"503":                         {peers.ResponseWithBody(503, vendorBody(t, "azure_openai_call_rate"), peers.AsJSON), 6 * time.Second},
		"problem+json":                {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, "content-type: Application/Problem+JSON"), 5 * time.Second},
		"identity":                    {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, peers.AsJSON, "Content-Encoding: Identity"), 5 * time.Second},
		"longer than a header":        {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, peers.AsJSON, "Retry-After: 3"), 5 * time.Second},
		"shorter than a header":       {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, peers.AsJSON, "Retry-After: 8"), 8 * time.Second},
		"chunked":                     {"HTTP/1.1 429 X\r\n" + peers.AsJSON + "\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"detail\":\"try a\r\nf\r\ngain in 5.25s.\"}\r\n0\r\n\r\n", 5250 * time.Millisecond},
		"none":                        {peers.ResponseWithBody(429, `{"detail":"slow down"}`, peers.AsJSON), time.Millisecond},
		"beyond what is read":         {peers.ResponseWithBody(429, `{"a":"`+strings.Repeat("x", apierror.MaxBytes)+`","detail":"try again in 5s"}`, peers.AsJSON), time.Millisecond},
		"a text":                      {peers.ResponseWithBody(429, "Too many requests. Retry after 5 seconds.", "Content-Type: text/plain; charset=utf-8"), 5 * time.Second},
		"JSON as a text":              {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, "Content-Type: text/plain"), 5 * time.Second},
		"JSON as HTML":                {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, "Content-Type: text/html"), 5 * time.Second},
		"HTML":                        {peers.ResponseWithBody(429, `<p>{"detail":"try again in 5s"}`, "Content-Type: text/html"), time.Millisecond},
		"no JSON by its type":         {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, "Content-Type: application/pdf"), time.Millisecond},
		"an event":                    {peers.ResponseWithBody(429, "event: error\ndata: {\"error\":{\"retryDelay\":\"5s\"}}\n\n", "Content-Type: text/event-stream"), 5 * time.Second},
		"with a byte order mark":      {peers.ResponseWithBody(429, "\ufeff{\"retry_after\":5}", peers.AsJSON), 5 * time.Second},
		"protobuf in a text":          {peers.ResponseWithBody(429, `{"detail":"429 exhausted. [retry_delay {\n  seconds: 5\n}\n]"}`, peers.AsJSON), 5 * time.Second},
		"a form that is not known":    {peers.ResponseWithBody(429, `{"detail":"The quota is renewed in 5s"}`, peers.AsJSON), 5 * time.Second},
		"the same beside a header":    {peers.ResponseWithBody(429, `{"detail":"The quota is renewed in 5s"}`, peers.AsJSON, "Retry-After: 2"), 2 * time.Second},
		"the same of a 502":           {peers.ResponseWithBody(502, `{"detail":"The quota is renewed in 5s"}`, peers.AsJSON), time.Millisecond},
		"a unified limit":             {peers.ResponseWithBody(429, "{}", peers.AsJSON, "Date: Sun, 01 Mar 2026 12:00:00 GMT", "anthropic-ratelimit-unified-status: rejected", "anthropic-ratelimit-unified-reset: 1772366405"), 5 * time.Second},
		"a time against Date":         {peers.ResponseWithBody(429, `{"error":{"type":"usage_limit_reached","resets_at":1772366405}}`, peers.AsJSON, "Date: Sun, 01 Mar 2026 12:00:00 GMT"), 5 * time.Second},
		"gzip":                        {peers.ResponseWithBody(429, gzipped(`{"detail":"try again in 5s"}`), peers.AsJSON, "Content-Encoding: gzip"), 5 * time.Second},
		"gzip beyond what is read":    {peers.ResponseWithBody(429, gzipped(`{"a":"`+strings.Repeat("x", apierror.MaxBytes)+`","detail":"try again in 5s"}`), peers.AsJSON, "Content-Encoding: gzip"), time.Millisecond},
		"JSON-like type":              {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, "Content-Type: application/jsonp"), time.Millisecond},
		"no type":                     {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`), 5 * time.Second},
		"no JSON by its bytes":        {peers.ResponseWithBody(429, `detail: try again in 5s`, peers.AsJSON), 5 * time.Second},
		"compressed, as it says":      {peers.ResponseWithBody(429, `{"detail":"try again in 5s"}`, peers.AsJSON, "Content-Encoding: gzip"), time.Millisecond},
		"hostile and then a header":   {peers.ResponseWithBody(429, strings.Repeat("[", 60_000), peers.AsJSON, "Retry-After: 2"), 2 * time.Second},
		"a code that is a rate limit": {peers.ResponseWithBody(429, vendorBody(t, "mistral_rate_limit"), peers.AsJSON), time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			up := &peers.Timed{First: []string{tc.response}}
			proxytest.InMemory(t, up.Handle, func(c *proxy.Config) { c.Default.RequestTimeout = time.Minute }, func(t *testing.T, m *proxytest.Memory) {
				m.Client().Send(peers.Get("/")).Want(200, "ok")
				if d := up.At[1].Sub(up.At[0]); d < tc.want || d > tc.want+2*time.Millisecond {
					t.Errorf("retried after %v, want %v", d, tc.want)
				}
			})
		})
	}
}

// A request that exceeds a limit by itself is not retried, although its status is that of a rate limit.
func TestATooLargeRequestEndsRetries(t *testing.T) {
	const body = `{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31538. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}`
	for name, response := range map[string]string{"JSON": peers.ResponseWithBody(429, body, peers.AsJSON), "event stream": eventStream("data: " + body + "\n\n")} {
		up := peers.StartUpstream(t, peers.Script(response, peers.OK200))
		p := proxytest.Start(t, up, func(c *proxy.Config) { peers.HoldsStreams(t, c) })
		status, whole := statusAndBody(t, response)
		if name == "event stream" {
			whole = "data: " + body + "\n\n"
		}
		res := p.Dial().Send(peers.PostABC).Want(status, whole)
		if o := p.Seen.Outcome(t, 0); o != policy.OutcomeGaveUpRequestTooLarge || res.Header.Get("X-Retryproxy-Reason") != "request_too_large" || up.Sends() != 1 {
			t.Errorf("%s: %v, %v, %d sent", name, o, res.Header, up.Sends())
		}
	}
}

// A wait that does not fit goes to the client, with the complete body that asks for it.
func TestAWaitInAnErrorBodyThatDoesNotFit(t *testing.T) {
	body := vendorBody(t, "azure_openai_token_rate") // 86400 seconds
	up := peers.StartUpstream(t, peers.Script(peers.ResponseWithBody(429, body, peers.AsJSON), peers.OK200))
	p := proxytest.Start(t, up, nil)
	res := p.Dial().Send(peers.PostABC).Want(429, body)
	if p.Seen.Outcome(t, 0) != policy.GaveUp(policy.ReasonRetryAfterTooLong) || res.Header.Get("X-Retryproxy-Reason") != "retry_after_too_long" || up.Sends() != 1 {
		t.Errorf("%v, %v, %d sent", p.Seen.Outcomes, res.Header, up.Sends())
	}
}

func TestASpentAccountEndsRetries(t *testing.T) {
	beans, err := apierror.ParseList("out_of_beans,!insufficient_quota")
	if err != nil {
		t.Fatal(err)
	}
	quota := vendorBody(t, "openai_insufficient_quota")
	for name, tc := range map[string]struct {
		response string
		list     *apierror.List
		retried  bool
	}{
		"OpenAI":                        {peers.ResponseWithBody(429, quota, peers.AsJSON), nil, false},
		"Z.ai":                          {peers.ResponseWithBody(429, vendorBody(t, "zai_balance"), peers.AsJSON), nil, false},
		"Anthropic":                     {peers.ResponseWithBody(429, vendorBody(t, "anthropic_spend_cap"), peers.AsJSON), nil, false},
		"with a header that waits":      {peers.ResponseWithBody(429, quota, peers.AsJSON, "Retry-After: 0"), nil, false},
		"of a 503":                      {peers.ResponseWithBody(503, quota, peers.AsJSON), nil, false},
		"Gemini's limit per minute":     {peers.ResponseWithBody(429, strings.Replace(vendorBody(t, "gemini_per_minute"), "36", "0", -1), peers.AsJSON), nil, true},
		"code of a setting":             {peers.ResponseWithBody(429, `{"code":"out_of_beans"}`, peers.AsJSON), beans, false},
		"code that a setting takes out": {peers.ResponseWithBody(429, quota, peers.AsJSON), beans, true},
		"other code":                    {peers.ResponseWithBody(429, `{"code":"out_of_beans"}`, peers.AsJSON), nil, true},
		"compressed, as it says":        {peers.ResponseWithBody(429, quota, peers.AsJSON, "Content-Encoding: br"), nil, true},
		"no JSON":                       {peers.ResponseWithBody(429, quota, "Content-Type: application/pdf"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			up := peers.StartUpstream(t, peers.Script(tc.response, peers.OK200))
			p := proxytest.Start(t, up, func(c *proxy.Config) { c.Default.ErrorCodes = tc.list })
			if tc.retried {
				p.Dial().Send(peers.Get("/")).Want(200, "ok")
				return
			}
			status, whole := statusAndBody(t, tc.response)
			c := p.Dial()
			res := c.Send(peers.Get("/")).Want(status, whole)
			if o := p.Seen.Outcome(t, 0); o != policy.OutcomeGaveUpQuotaExhausted || res.Header.Get("X-Retryproxy-Reason") != "quota_exhausted" || up.Sends() != 1 {
				t.Errorf("%v, %v, %d sent", o, res.Header, up.Sends())
			}
			c.Send(peers.Get("/")).Want(200, "ok") // nothing stays behind
		})
	}
}

// statusAndBody is the status and body of a raw response.
func statusAndBody(t *testing.T, raw string) (int, string) {
	t.Helper()
	var r http1.Response
	n, err := r.Parse([]byte(raw), http1.Limits{}, []byte("GET"))
	if err != nil {
		t.Fatal(err)
	}
	return r.Status, raw[n:]
}

// After a retry, the body of the second failure counts.
func TestEachErrorBodyIsRead(t *testing.T) {
	quota := vendorBody(t, "openai_insufficient_quota")
	up := peers.StartUpstream(t, peers.Script(peers.ResponseWithBody(429, `{"error":{"message":"try again in 20ms"}}`, peers.AsJSON), peers.ResponseWithBody(429, quota, peers.AsJSON), peers.OK200))
	p := proxytest.Start(t, up, nil)
	p.Dial().Send(peers.PostABC).Want(429, quota)
	if p.Seen.Outcome(t, 0) != policy.OutcomeGaveUpQuotaExhausted || up.Sends() != 2 {
		t.Errorf("%v after %d", p.Seen.Outcomes, up.Sends())
	}
}

// A pause that a body asks for is shared like that of a header, and one that is too long is not.
func TestAPauseOfAnErrorBodyIsShared(t *testing.T) {
	up := &peers.Timed{First: []string{peers.ResponseWithBody(429, `{"error":{"message":"try again in 5s"}}`, peers.AsJSON)}}
	proxytest.InMemory(t, up.Handle, peers.SharedPause("route"), func(t *testing.T, m *proxytest.Memory) {
		began := time.Now()
		first := m.Client().Send(peers.Get("/")).Later()
		time.Sleep(time.Second)
		_, at := m.Client().Send(peers.Get("/")).Later()()
		if d := at.Sub(began); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("the second was answered after %v", d)
		}
		first()
	})
	up = &peers.Timed{First: []string{peers.ResponseWithBody(429, `{"error":{"message":"try again in 61s"}}`, peers.AsJSON)}}
	proxytest.InMemory(t, up.Handle, func(c *proxy.Config) {
		peers.SharedPause("route")(c)
		c.Default.RequestTimeout = 10 * time.Minute
	}, func(t *testing.T, m *proxytest.Memory) {
		m.Client().Send(peers.Get("/")).Want(429, "*")
		if o := m.Seen.Outcome(t, 0); o != policy.OutcomeGaveUpRetryAfterTooLong {
			t.Errorf("%v", o)
		}
		m.Client().Send(peers.Get("/")).Want(200, "ok")
	})
}
