package retryafter

import "strings"

// Form is how the value of a header states a wait.
type Form uint8

// The forms, a closed set.
const (
	FormRetryAfter   Form = iota // see parseOrder
	FormMilliseconds             // a number of milliseconds, with or without a fraction
	FormReset                    // see parseReset
	FormStructured               // see structured.go
	numForms
)

var formTexts = [numForms]string{
	FormRetryAfter:   "seconds, with or without a fraction, or an HTTP date, and what middleboxes make of them",
	FormMilliseconds: "milliseconds",
	FormReset:        "a reset",
	FormStructured:   "`\"name\";r=0;t=30`, or `limit=10, remaining=0, reset=30` of draft 7",
}

// String describes the form for readers of the documentation, or returns "invalid" for a value
// outside the set.
func (f Form) String() string {
	if f >= numForms {
		return "invalid"
	}
	return formTexts[f]
}

// Row is one header that states a wait, and its source.
type Row struct {
	Header string // its name; * stands for any text of one byte or more
	// Left is the header whose count must be 0 for Header to apply: it is replenished after the
	// wait. "" if Header is an order to wait. A * stands for the same text as in Header.
	Left   string
	Spent  string // the value of Left that stands for 0, in lower case; "" for the number
	Form   Form
	Source string // the document or client library
}

// Order reports whether the header is an order to wait. Orders take precedence over headers that
// only state when a rate limit is replenished.
func (r *Row) Order() bool { return r.Left == "" }

// rows are all headers that state a wait. Orders come first.
var rows = [...]Row{
	{Header: "Retry-After", Form: FormRetryAfter,
		Source: "RFC 9110 section 10.2.3; fractions: openai-python `_base_client.py`, Discord"},
	{Header: "Retry-After-Ms", Form: FormMilliseconds,
		Source: "openai-python `_base_client.py`, azure-sdk-for-js `throttlingRetryStrategy.ts`"},
	{Header: "X-Ms-Retry-After-Ms", Form: FormMilliseconds,
		Source: "azure-sdk-for-js `throttlingRetryStrategy.ts`"},
	{Header: "X-Amz-Retry-After", Form: FormMilliseconds,
		Source: "smithy-rs `aws-runtime/src/retries/classifiers.rs` (milliseconds, unlike Retry-After)"},
	{Header: "*-Retry-After-Ms", Form: FormMilliseconds,
		Source: "LiteLLM, \"Response Headers\" (`llm_provider-`, before the header of its upstream)"},
	{Header: "*-Retry-After", Form: FormRetryAfter,
		Source: "MailerLite, \"API rate limits\" (`X-RateLimit-`); LiteLLM, \"Response Headers\" (`llm_provider-`); Azure API Management, rate-limit policy (`retry-after-header-name`)"},
	{Header: "*-Retry-After-Seconds", Form: FormRetryAfter,
		Source: "OpenSky Network, \"REST API\" (`X-Rate-Limit-`; 429)"},

	{Header: "X-RateLimit-TimeRemaining", Form: FormRetryAfter,
		Source: "GitHub Models, LiteLLM issue 10238 (`x-ratelimit-type`; 429)"},

	{Header: "RateLimit", Left: "RateLimit", Form: FormStructured,
		Source: "draft-ietf-httpapi-ratelimit-headers-07 to -10; without `t`, the window `w` of RateLimit-Policy"},
	{Header: "RateLimit-Reset", Left: "RateLimit-Remaining", Form: FormReset,
		Source: "draft-ietf-httpapi-ratelimit-headers-00 to -06 (seconds), GitLab (moment)"},
	{Header: "X-RateLimit-Reset", Left: "X-RateLimit-Remaining", Form: FormReset,
		Source: "GitHub (moment), Reddit and Envoy (seconds), OpenRouter (milliseconds since 1970)"},
	{Header: "X-Rate-Limit-Reset", Left: "X-Rate-Limit-Remaining", Form: FormReset,
		Source: "X, formerly Twitter (moment)"},
	{Header: "X-RateLimit-Reset-After", Left: "X-RateLimit-Remaining", Form: FormReset,
		Source: "Discord, \"Rate Limits\" (seconds with a fraction)"},
	{Header: "X-RateLimit-Reset-*", Left: "X-RateLimit-Remaining-*", Form: FormReset,
		Source: "OpenAI and Groq (`-requests`, `-tokens`; durations), Azure OpenAI (`-tokens`; seconds), Cerebras (`-requests-day`, `-tokens-minute`; seconds)"},
	{Header: "X-RateLimit-*-Reset", Left: "X-RateLimit-*-Remaining", Form: FormReset,
		Source: "Linear (`-Requests-Reset`; milliseconds since 1970), Connecteam (`-minute-reset`; moment)"},
	{Header: "Anthropic-RateLimit-Unified-Reset", Left: "Anthropic-RateLimit-Unified-Status", Spent: "rejected", Form: FormReset,
		Source: "gajae-code pull request 2464, CLIProxyAPI issue 4874 (moment)"},
	{Header: "Anthropic-RateLimit-Unified-*-Reset", Left: "Anthropic-RateLimit-Unified-*-Status", Spent: "rejected", Form: FormReset,
		Source: "the same, of one window: `5h`, `7d`"},
	{Header: "X-Codex-*-Reset-After-Seconds", Left: "X-Codex-*-Used-Percent", Spent: "100", Form: FormReset,
		Source: "OpenAI Codex `rate_limits.rs` (`primary`, `secondary`)"},
	{Header: "Anthropic-RateLimit-*-Reset", Left: "Anthropic-RateLimit-*-Remaining", Form: FormReset,
		Source: "Anthropic, \"Rate limits\" (`requests`, `tokens`, `input-tokens`, `output-tokens`; RFC 3339)"},
}

// Rows returns all headers that state a wait, orders first. The slice belongs to the caller.
func Rows() []Row { return append([]Row(nil), rows[:]...) }

// pattern is a header name, cut at its *.
type pattern struct {
	before, after []byte
	star          bool
}

func newPattern(name string) pattern {
	before, after, star := strings.Cut(name, "*")
	return pattern{[]byte(before), []byte(after), star}
}

// match reports whether name matches in any case, and returns the text for the *. An underscore
// matches a hyphen: some gateways keep headers as variables.
func (p *pattern) match(name []byte) (what []byte, ok bool) {
	end := len(name) - len(p.after)
	if end < len(p.before) || p.star != (end > len(p.before)) || !equalName(name[:len(p.before)], p.before) || !equalName(name[end:], p.after) {
		return nil, false
	}
	return name[len(p.before):end], true
}

// equalName compares two names of the same length, of which b has no underscore.
func equalName(a, b []byte) bool {
	for i := range a {
		c, d := a[i], b[i]
		if c == '_' {
			c = '-'
		}
		if c != d && (c|0x20 != d|0x20 || c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// patterns are those of rows.
var patterns = func() (all [len(rows)]struct{ header, left pattern }) {
	for i := range rows {
		all[i].header, all[i].left = newPattern(rows[i].Header), newPattern(rows[i].Left)
	}
	return all
}()
