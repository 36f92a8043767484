package proxy

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy"
	"github.com/retryproxy/retryproxy/policy/apierror"
	"github.com/retryproxy/retryproxy/proxy/http1"
)

// rawBody is a response with that body and the headers given, each a line.
func rawBody(status int, body string, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\n%sContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), strings.Join(append(headers, ""), "\r\n"), len(body), body)
}

const asJSON = "Content-Type: application/json; charset=utf-8"

// vendorBody is a body of testdata of package apierror.
func vendorBody(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile("../policy/apierror/testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

const postABC = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"

func TestAWaitInAnErrorBodyIsObeyed(t *testing.T) {
	for name, tc := range map[string]struct {
		response string
		want     time.Duration
	}{
		"OpenAI":                      {rawBody(429, vendorBody(t, "openai_rate_limit_seconds"), asJSON), 18642 * time.Millisecond},
		"Gemini":                      {rawBody(429, vendorBody(t, "gemini_retry_info_alone"), asJSON), 34074824224},
		"Azure OpenAI":                {rawBody(429, vendorBody(t, "azure_openai_call_rate"), asJSON), 6 * time.Second},
		"503":                         {rawBody(503, vendorBody(t, "azure_openai_call_rate"), asJSON), 6 * time.Second},
		"problem+json":                {rawBody(429, `{"detail":"try again in 5s"}`, "content-type: Application/Problem+JSON"), 5 * time.Second},
		"identity":                    {rawBody(429, `{"detail":"try again in 5s"}`, asJSON, "Content-Encoding: Identity"), 5 * time.Second},
		"longer than a header":        {rawBody(429, `{"detail":"try again in 5s"}`, asJSON, "Retry-After: 3"), 5 * time.Second},
		"shorter than a header":       {rawBody(429, `{"detail":"try again in 5s"}`, asJSON, "Retry-After: 8"), 8 * time.Second},
		"chunked":                     {"HTTP/1.1 429 X\r\n" + asJSON + "\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{\"detail\":\"try a\r\nf\r\ngain in 5.25s.\"}\r\n0\r\n\r\n", 5250 * time.Millisecond},
		"none":                        {rawBody(429, `{"detail":"slow down"}`, asJSON), time.Millisecond},
		"beyond what is read":         {rawBody(429, `{"a":"`+strings.Repeat("x", apierror.MaxBytes)+`","detail":"try again in 5s"}`, asJSON), time.Millisecond},
		"a text":                      {rawBody(429, "Too many requests. Retry after 5 seconds.", "Content-Type: text/plain; charset=utf-8"), 5 * time.Second},
		"JSON as a text":              {rawBody(429, `{"detail":"try again in 5s"}`, "Content-Type: text/plain"), 5 * time.Second},
		"JSON as HTML":                {rawBody(429, `{"detail":"try again in 5s"}`, "Content-Type: text/html"), 5 * time.Second},
		"HTML":                        {rawBody(429, `<p>{"detail":"try again in 5s"}`, "Content-Type: text/html"), time.Millisecond},
		"no JSON by its type":         {rawBody(429, `{"detail":"try again in 5s"}`, "Content-Type: application/pdf"), time.Millisecond},
		"an event":                    {rawBody(429, "event: error\ndata: {\"error\":{\"retryDelay\":\"5s\"}}\n\n", "Content-Type: text/event-stream"), 5 * time.Second},
		"with a byte order mark":      {rawBody(429, "\ufeff{\"retry_after\":5}", asJSON), 5 * time.Second},
		"protobuf in a text":          {rawBody(429, `{"detail":"429 exhausted. [retry_delay {\n  seconds: 5\n}\n]"}`, asJSON), 5 * time.Second},
		"a form that is not known":    {rawBody(429, `{"detail":"The quota is renewed in 5s"}`, asJSON), 5 * time.Second},
		"the same beside a header":    {rawBody(429, `{"detail":"The quota is renewed in 5s"}`, asJSON, "Retry-After: 2"), 2 * time.Second},
		"the same of a 502":           {rawBody(502, `{"detail":"The quota is renewed in 5s"}`, asJSON), time.Millisecond},
		"a unified limit":             {rawBody(429, "{}", asJSON, "Date: Sun, 01 Mar 2026 12:00:00 GMT", "anthropic-ratelimit-unified-status: rejected", "anthropic-ratelimit-unified-reset: 1772366405"), 5 * time.Second},
		"a time against Date":         {rawBody(429, `{"error":{"type":"usage_limit_reached","resets_at":1772366405}}`, asJSON, "Date: Sun, 01 Mar 2026 12:00:00 GMT"), 5 * time.Second},
		"gzip":                        {rawBody(429, gzipped(`{"detail":"try again in 5s"}`), asJSON, "Content-Encoding: gzip"), 5 * time.Second},
		"gzip beyond what is read":    {rawBody(429, gzipped(`{"a":"`+strings.Repeat("x", apierror.MaxBytes)+`","detail":"try again in 5s"}`), asJSON, "Content-Encoding: gzip"), time.Millisecond},
		"JSON-like type":              {rawBody(429, `{"detail":"try again in 5s"}`, "Content-Type: application/jsonp"), time.Millisecond},
		"no type":                     {rawBody(429, `{"detail":"try again in 5s"}`), 5 * time.Second},
		"no JSON by its bytes":        {rawBody(429, `detail: try again in 5s`, asJSON), 5 * time.Second},
		"compressed, as it says":      {rawBody(429, `{"detail":"try again in 5s"}`, asJSON, "Content-Encoding: gzip"), time.Millisecond},
		"hostile and then a header":   {rawBody(429, strings.Repeat("[", 60_000), asJSON, "Retry-After: 2"), 2 * time.Second},
		"a code that is a rate limit": {rawBody(429, vendorBody(t, "mistral_rate_limit"), asJSON), time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			up := &timed{first: []string{tc.response}}
			inMemory(t, up.handle, func(c *Config) { c.Default.RequestTimeout = time.Minute }, func(t *testing.T, m *memory) {
				m.client().send(get("/")).want(200, "ok")
				if d := up.at[1].Sub(up.at[0]); d < tc.want || d > tc.want+2*time.Millisecond {
					t.Errorf("retried after %v, want %v", d, tc.want)
				}
			})
		})
	}
}

// A request that exceeds a limit by itself is not retried, although its status is that of a rate limit.
func TestATooLargeRequestEndsRetries(t *testing.T) {
	const body = `{"error":{"message":"Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31538. The input or output tokens must be reduced in order to run successfully.","type":"tokens","code":"rate_limit_exceeded"}}`
	for name, response := range map[string]string{"JSON": rawBody(429, body, asJSON), "event stream": eventStream("data: " + body + "\n\n")} {
		up := startUpstream(t, script(response, ok200))
		p := startProxy(t, up, func(c *Config) { holdsStreams(t, c) })
		status, whole := statusAndBody(t, response)
		if name == "event stream" {
			whole = "data: " + body + "\n\n"
		}
		res := p.dial().send(postABC).want(status, whole)
		if o := p.seen.outcome(t, 0); o != policy.OutcomeGaveUpRequestTooLarge || res.Header.Get("X-Retryproxy-Reason") != "request_too_large" || up.sends() != 1 {
			t.Errorf("%s: %v, %v, %d sent", name, o, res.Header, up.sends())
		}
	}
}

// A wait that does not fit goes to the client, with the complete body that asks for it.
func TestAWaitInAnErrorBodyThatDoesNotFit(t *testing.T) {
	body := vendorBody(t, "azure_openai_token_rate") // 86400 seconds
	up := startUpstream(t, script(rawBody(429, body, asJSON), ok200))
	p := startProxy(t, up, nil)
	res := p.dial().send(postABC).want(429, body)
	if p.seen.outcome(t, 0) != policy.GaveUp(policy.ReasonRetryAfterTooLong) || res.Header.Get("X-Retryproxy-Reason") != "retry_after_too_long" || up.sends() != 1 {
		t.Errorf("%v, %v, %d sent", p.seen.outcomes, res.Header, up.sends())
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
		"OpenAI":                        {rawBody(429, quota, asJSON), nil, false},
		"Z.ai":                          {rawBody(429, vendorBody(t, "zai_balance"), asJSON), nil, false},
		"Anthropic":                     {rawBody(429, vendorBody(t, "anthropic_spend_cap"), asJSON), nil, false},
		"with a header that waits":      {rawBody(429, quota, asJSON, "Retry-After: 0"), nil, false},
		"of a 503":                      {rawBody(503, quota, asJSON), nil, false},
		"Gemini's limit per minute":     {rawBody(429, strings.Replace(vendorBody(t, "gemini_per_minute"), "36", "0", -1), asJSON), nil, true},
		"code of a setting":             {rawBody(429, `{"code":"out_of_beans"}`, asJSON), beans, false},
		"code that a setting takes out": {rawBody(429, quota, asJSON), beans, true},
		"other code":                    {rawBody(429, `{"code":"out_of_beans"}`, asJSON), nil, true},
		"compressed, as it says":        {rawBody(429, quota, asJSON, "Content-Encoding: br"), nil, true},
		"no JSON":                       {rawBody(429, quota, "Content-Type: application/pdf"), nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			up := startUpstream(t, script(tc.response, ok200))
			p := startProxy(t, up, func(c *Config) { c.Default.ErrorCodes = tc.list })
			if tc.retried {
				p.dial().send(get("/")).want(200, "ok")
				return
			}
			status, whole := statusAndBody(t, tc.response)
			c := p.dial()
			res := c.send(get("/")).want(status, whole)
			if o := p.seen.outcome(t, 0); o != policy.OutcomeGaveUpQuotaExhausted || res.Header.Get("X-Retryproxy-Reason") != "quota_exhausted" || up.sends() != 1 {
				t.Errorf("%v, %v, %d sent", o, res.Header, up.sends())
			}
			c.send(get("/")).want(200, "ok") // nothing stays behind
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
	up := startUpstream(t, script(rawBody(429, `{"error":{"message":"try again in 20ms"}}`, asJSON), rawBody(429, quota, asJSON), ok200))
	p := startProxy(t, up, nil)
	p.dial().send(postABC).want(429, quota)
	if p.seen.outcome(t, 0) != policy.OutcomeGaveUpQuotaExhausted || up.sends() != 2 {
		t.Errorf("%v after %d", p.seen.outcomes, up.sends())
	}
}

// A pause that a body asks for is shared like that of a header, and one that is too long is not.
func TestAPauseOfAnErrorBodyIsShared(t *testing.T) {
	up := &timed{first: []string{rawBody(429, `{"error":{"message":"try again in 5s"}}`, asJSON)}}
	inMemory(t, up.handle, sharedPause("route"), func(t *testing.T, m *memory) {
		began := time.Now()
		first := m.client().send(get("/")).later()
		time.Sleep(time.Second)
		_, at := m.client().send(get("/")).later()()
		if d := at.Sub(began); d < 5*time.Second || d > 6*time.Second {
			t.Errorf("the second was answered after %v", d)
		}
		first()
	})
	up = &timed{first: []string{rawBody(429, `{"error":{"message":"try again in 61s"}}`, asJSON)}}
	inMemory(t, up.handle, func(c *Config) {
		sharedPause("route")(c)
		c.Default.RequestTimeout = 10 * time.Minute
	}, func(t *testing.T, m *memory) {
		m.client().send(get("/")).want(429, "*")
		if o := m.seen.outcome(t, 0); o != policy.OutcomeGaveUpRetryAfterTooLong {
			t.Errorf("%v", o)
		}
		m.client().send(get("/")).want(200, "ok")
	})
}
