package apierror

import "time"

// WaitForm is one form in which error bodies ask for a wait.
type WaitForm struct {
	// Key is the name of a member whose value is the wait. Case, hyphens and underscores do not
	// matter. "" if the form is a phrase in a message.
	Key    string
	Unit   time.Duration // of a number without one
	Phrase string        // precedes the wait, in lower case; a space may be a hyphen or underscore; "" for a Key
	Bare   bool          // after Phrase, a number without a unit is seconds
	Renews bool          // the wait may be when an account is renewed that is used up

	Example string // a member, or a message
	Source  string
}

// waitForms are the known forms. A value of a Key may be a number, a duration or a time.
var waitForms = [...]WaitForm{
	{Key: "retryDelay", Unit: time.Second, Example: `"retryDelay": "34.074824224s"`, Source: "`google.rpc.RetryInfo`, Gemini"},
	{Key: "quotaResetDelay", Unit: time.Second, Example: `"quotaResetDelay": "33740.910400305s"`, Source: "Gemini Code Assist, gemini-cli issue 29425"},
	{Key: "quotaResetTimeStamp", Unit: time.Second, Example: `"quotaResetTimeStamp": "2026-03-01T12:00:30Z"`, Source: "Gemini Code Assist, gemini-cli issue 29425"},
	{Key: "retry_after", Unit: time.Second, Example: `"retry_after": 64.57`, Source: "Discord, \"Rate Limits\""},
	{Key: "retry_after_seconds", Unit: time.Second, Example: `"retry_after_seconds": "30"`, Source: "API Evangelist, rate limit response structure"},
	{Key: "retryAfterSec", Unit: time.Second, Example: `"retryAfterSec": 30`, Source: "Belgif, problem type `tooManyRequests`"},
	{Key: "retryAfter", Unit: time.Second, Example: `"retryAfter": "2026-03-01T12:00:30Z"`, Source: "Belgif, problem type `tooManyRequests`"},
	{Key: "retry_after_ms", Unit: time.Millisecond, Example: `"retry_after_ms": 1500`, Source: "Matrix specification, `M_LIMIT_EXCEEDED`"},
	{Key: "resets_in_seconds", Unit: time.Second, Example: `"resets_in_seconds": 30`, Source: "OpenAI Codex, `usage_limit_reached`"},
	{Key: "resets_at", Unit: time.Second, Example: `"resets_at": 1772366430`, Source: "OpenAI Codex, `usage_limit_reached`"},
	{Key: "reset_after_seconds", Unit: time.Second, Example: `"reset_after_seconds": 30`, Source: "OpenAI Codex, usage API: axusage `types/codex.ts`"},
	{Key: "reset_at", Unit: time.Second, Example: `"reset_at": "2026-03-01T12:00:30.000Z"`, Source: "OmniRoute pull request 14188"},
	{Key: "rateLimitNext", Unit: time.Second, Example: `"rateLimitNext": "2026-03-01T12:00:30.123456Z"`, Source: "Akamai, mTLS Edge Truststore API, \"429\""},
	{Key: "X-RateLimit-Reset", Unit: time.Second, Example: `"X-RateLimit-Reset": "1772366430000"`, Source: "OpenRouter, `error.metadata.headers`: dirge pull request 719"},

	{Phrase: "try again in", Example: "Please try again in 1m30s", Source: "OpenAI: codex-rs `codex-api/src/sse/responses.rs`; Groq: firecrawl issue 81"},
	{Phrase: "try again after", Example: "try again after 30 seconds", Source: "express-rate-limit `README.md` (\"please try again after an hour\")"},
	{Phrase: "retry in", Example: "Please retry in 36.4s", Source: "Gemini: gemini-cli `googleQuotaErrors.ts`"},
	{Phrase: "retry after", Bare: true, Example: "Please retry after 6 seconds", Source: "Azure OpenAI; QwenPaw issue 4515 (\"please retry after 300 seconds\"); Akamai, CPS API, \"429\""},
	{Phrase: "reset after", Example: "It will reset after 27h41m36s", Source: "Gemini Code Assist, OmniRoute issue 858"},
	{Phrase: "resets in", Example: "Individual limit reached. Resets in 9h22m20s.", Source: "Gemini Code Assist, gemini-cli issue 29425"},
	{Phrase: "please wait", Example: "Please wait 10 hours 58 minutes before trying again", Source: "GitHub Copilot, vscode-copilot-release issue 3519"},
	{Phrase: "try again at", Example: "Please try again at 2026-03-01 12:00:30", Source: "OpenAI Codex, `usage_limit_reached`"},
	{Phrase: "resets at", Example: "Limit resets at: 2026-03-01 12:00:30 UTC", Source: "LiteLLM `parallel_request_limiter_v3.py`"},
	{Phrase: "reset at", Example: "Your limit will reset at 2026-03-01 12:00:30", Source: "Z.ai, code 1308"},
	{Phrase: "regain access on", Renews: true, Example: "You will regain access on 2026-03-01 at 12:01 UTC.", Source: "claude-code issue 38035"},
	{Phrase: "replenished in", Renews: true, Example: "It will be replenished in 01:12:00.", Source: "Azure API Management, policy reference (403)"},
	{Phrase: "available in", Example: "Request was throttled. Expected available in 1 second.", Source: "Django REST framework `exceptions.py`, Replicate"},
	{Phrase: "timed out for", Example: "you have been timed out for 60 seconds", Source: "Stability AI, \"Rate limits\" (429)"},
	{Phrase: "submit the request after", Example: "You can submit the request after 49 seconds", Source: "Akamai, mTLS Edge Truststore API, \"429\""},
}

// WaitForms returns the known forms of a wait. The slice belongs to the caller.
func WaitForms() []WaitForm { return append([]WaitForm(nil), waitForms[:]...) }
