package apierror

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// messageBody is a body with that message.
func messageBody(t *testing.T, message string) []byte {
	t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"error":{"code":"429","message":%s}}`, text)
}

// Each form of the table, as its source sends it, and a body with only a text.
func TestEachWaitForm(t *testing.T) {
	want := map[string]time.Duration{ // other than 30 s
		"retryDelay": 34074824224, "quotaResetDelay": 33740910400305 * time.Nanosecond, "retry_after": 64570 * time.Millisecond, "retry_after_ms": 1500 * time.Millisecond,
		"rateLimitNext": 30123456 * time.Microsecond, "try again in": 90 * time.Second, "retry in": 36400 * time.Millisecond, "retry after": 6 * time.Second,
		"reset after": 27*time.Hour + 41*time.Minute + 36*time.Second, "resets in": 9*time.Hour + 22*time.Minute + 20*time.Second,
		"please wait": 10*time.Hour + 58*time.Minute, "submit the request after": 49 * time.Second, "regain access on": time.Minute, "replenished in": 72 * time.Minute, "available in": time.Second,
		"timed out for": time.Minute,
	}
	for _, f := range WaitForms() {
		wait := 30 * time.Second
		if w, other := want[f.Key+f.Phrase]; other {
			wait = w
		}
		if (f.Key == "") == (f.Phrase == "") || f.Source == "" {
			t.Errorf("%+v", f)
		}
		bodies := []string{`{"error":{"details":[{` + f.Example + `}]}}`, `{` + strings.ToUpper(f.Key) + `"x":1,` + strings.ReplaceAll(f.Example, "_", "-") + `}`}
		if f.Phrase != "" {
			bodies = []string{string(messageBody(t, "Limit. "+f.Example+" Visit us.")), f.Example, strings.ReplaceAll(strings.ToUpper(f.Example), " AT 12", " at 12")}
		} else {
			bodies[1] = bodies[0]
		}
		for _, body := range bodies {
			if v := read(Usual(), []byte(body)); v != (Verdict{Wait: wait, HasWait: true}) {
				t.Errorf("%s: %+v, want %v", body, v, wait)
			}
		}
	}
}

// Spellings of keys, and forms of their values.
func TestKeysOfWaits(t *testing.T) {
	const s = time.Second
	for member, want := range map[string]time.Duration{
		`"retry_after":"30"`: 30 * s, `"retry-after":"30"`: 30 * s, `"Retry-After":30`: 30 * s, `"retryAfterMs":1500`: 1500 * time.Millisecond, `"retry_after_ms":"1500"`: 1500 * time.Millisecond,
		`"retryAfterSeconds":1.5`: 1500 * time.Millisecond, `"retry_after":"30s"`: 30 * s, `"retry_after":"PT1M"`: 60 * s, `"retry_after":"30 seconds"`: 30 * s,
		`"retry_after":"Sun, 01 Mar 2026 12:00:30 GMT"`: 30 * s, `"retryAfter":1772366430000`: 30 * s, `"resets_at":"1772366430"`: 30 * s, `"resetsAt":1772366430.5`: 30500 * time.Millisecond,
		`"quotaResetDelay":"1h16m0.5s"`: 4560500 * time.Millisecond, `"quotaResetDelay":"331.167174ms"`: 331167174,
		`"retryDelay":{"seconds":34,"nanos":74824224}`: 34074824224, `"retry_delay":{"seconds":"34"}`: 34 * s, `"retry_after":{"milliseconds":1500}`: 1500 * time.Millisecond, `"headers":{"retry-after":["30"]}`: 30 * s, `"retry_after":[5]`: 5 * s,
		`"message":"[links { url: \"x\" }, retry_delay {\n  seconds: 34\n  nanos: 500000000\n}]"`: 34500 * time.Millisecond, `"message":"{\n  \"error\": { \"details\": [ { \"retryDelay\": \"38s\" } ] }}"`: 38 * s,
		`"message":"{'error': {'details': [{'retryDelay': '58s'}]}}"`: 58 * s, `"message":"retryAfterMs=1500, count=3"`: 1500 * time.Millisecond,
		`"message":"{\u0022retry_after\u0022: 7}"`: 7 * s, `"reset_at":"2026-03-01T11:00:00Z"`: 0,
	} {
		if v := read(Usual(), []byte("{"+member+"}")); v != (Verdict{Wait: want, HasWait: true}) {
			t.Errorf("%s: %+v, want %v", member, v, want)
		}
	}
	for member, want := range map[string]time.Duration{ // by the rule
		`"retryAfterMilliseconds":1500`: 1500 * time.Millisecond, `"retry_in":30`: 30 * s, `"wait_seconds":30`: 30 * s, `"waitTimeMs":"1500"`: 1500 * time.Millisecond,
		`"cooldown_until":"2026-03-01T12:00:30Z"`: 30 * s, `"quota_reset_time":1772366430`: 30 * s, `"RateLimit-Reset":30`: 30 * s, `"reset_in_minutes":2`: 120 * s, `"next_available_at":"2026-03-01T12:00:30Z"`: 30 * s,
		`"estimated_time":20.5`: 20500 * time.Millisecond, `"wait":30`: 30 * s, `"cooldown":30`: 30 * s, `"eta":30`: 30 * s, `"try_again_in":"30s"`: 30 * s, `"blocked_until":"2026-03-01T12:00:30Z"`: 30 * s, `"unlock_at":1772366430`: 30 * s,
		`"nextAllowedRequest":"2026-03-01T12:00:30Z"`: 30 * s, `"retry":{"after_ms":1500}`: 1500 * time.Millisecond, `"queue":{"eta_seconds":30}`: 30 * s, `"message":"Wait time: 30"`: 30 * s, `"message":"Retry at 2026-03-01T12:00:30Z"`: 30 * s, `"message":"This operation has reached the limit for your account. Please try after 2026-03-01T12:00:30Z."`: 30 * s,
	} {
		if v := read(Usual(), []byte("{"+member+"}")); v != (Verdict{Wait: want, HasWait: true, Guessed: true}) {
			t.Errorf("%s: %+v, want %v", member, v, want)
		}
	}
	for _, member := range []string{
		`"retry_count":3`, `"max_retries":3`, `"max_wait_seconds":30`, `"retryable":true`, `"retry_after":-5`, `"retry_after":"soon"`, `"retry_after":null`, `"retry":{"max_seconds":5}`, `"retry_on":[429]`, `"next_page":5`, `"backoff_multiplier":2`, `"error":{"seconds":5}`, `"retryDelay":{"x":{"seconds":5}}`, `"limit":30`, `"time":30`,
		`"created_at":1772366430`, `"retry_policy_seconds":5`, `"remaining":30`, `"string":"30s"`, `"limit_window_seconds":18000`, `"` + strings.Repeat("retry_after_", 10) + `":5`,
	} {
		if v := read(Usual(), []byte("{"+member+"}")); v != (Verdict{}) {
			t.Errorf("%s: %+v", member, v)
		}
	}
}

// What no form has is a wait if it is near a word about a limit or a retry.
func TestUnknownDurationsAreWaits(t *testing.T) {
	const s = time.Second
	for message, want := range map[string]time.Duration{
		"Rate limit reached. Your next window opens in 42 seconds.": 42 * s,
		"Too many requests, cool down for 20s":                      20 * s,
		"You are throttled for the next 90 seconds":                 90 * s,
		"Rate limit exceeded: 5 per 1 minute":                       60 * s,
		"Limit of 10 requests in 60 seconds exceeded":               60 * s,
		"Wait a minute before you send more":                        60 * s,
		"Retry once an hour has passed":                             3600 * s,
		"usage limit reached|1772366430":                            30 * s,
		"Your quota is renewed on 2026-03-01 12:00:30 UTC.":         30 * s,
		"速率限制，请在30秒后重试":                                             30 * s,
		"请求过于频繁，请 5 分钟后再试":                                          300 * s,
		"Rate limit exceeded. Limit: 5/1min. Current: 6/1min.":      60 * s, "5-hour limit reached": 5 * 3600 * s, "Too many requests; next request allowed in 30 seconds": 30 * s, "Come back in 30 seconds": 30 * s,
		"Slow down: 1 request every 30 seconds": 30 * s, "Temporarily blocked for 5 minutes": 300 * s, "Retry in 30": 30 * s, "Please try again in 30.": 30 * s,
		"You have exceeded the limit of the plan that your team has had for a while now, as you can see on the page about it, and may go on in 60 seconds": 60 * s,
		"已达到 5 小时的使用上限。您的限额将在 2026-03-01 12:00:30 重置。":                                                                                                     30 * s, "Usage limit reached for 5 hour, renewed 2026-03-01 12:00:30": 30 * s,
		"5-hour limit reached ∙ resets 3pm": 3 * 3600 * s, "Access resets at 10:57 PM GMT-3.": 13*3600*s + 57*60*s, "Try again after 12:05 UTC": 300 * s, "Limit reached until 14:30": 9000 * s, "Limit reset at 11am": 23 * 3600 * s,
		"Limit: 10s window, 30s until reset": 30 * s,
	} {
		if v := read(Usual(), messageBody(t, message)); v != (Verdict{Wait: want, HasWait: true, Guessed: true}) {
			t.Errorf("%s: %+v, want %v", message, v, want)
		}
	}
	for message, want := range map[string]time.Duration{ // known forms in other clothes
		"Quota exceeded; more is available in 1 hour, 5 minutes":                      65 * 60 * s,
		"Quota will be replenished in 00:01:30.":                                      90 * s,
		"Quota will be replenished in 1.00:00:30.":                                    86430 * s,
		"The limit resets at: 2026-03-01T12:00:30+0000":                               30 * s,
		"You will regain access on 2026-03-01 at 12:01 UTC, when your limit is reset": 60 * s,
		`{"error":{"retryDelay":"34s"}}`:                                              34 * s,
		"Retry-After: 30":                                                             30 * s, "retry after 30": 30 * s, "please retry after 30.": 30 * s, `{\"retry_after\": 30}`: 30 * s, "retry_after=1.5": 1500 * time.Millisecond, "Please try again in about 30 seconds": 30 * s,
		"Retry after at least one minute": 60 * s, "Limit 20 per 1 minute. Try again in 5s": 5 * s,
	} {
		if v := read(Usual(), messageBody(t, message)); v != (Verdict{Wait: want, HasWait: true}) {
			t.Errorf("%s: %+v, want %v", message, v, want)
		}
	}
	for _, message := range []string{
		"The job took 30 seconds", "Rate limit reached on tokens per min (TPM): Limit 30000, Used 25292, Requested 10584.", "Your limit was raised 3 days ago", "rate limit of 20,000 input tokens per minute",
		"retry after 5 apples", "quota limit: 5, model: gemini-3-flash", "limit reached for gpt-4o-mini-2024-07-18", "limit|1772366400", "limit|177236640000000", "limit since 2020-01-01T00:00:00Z", "limit since 2020-01-01 00:00:00 UTC", "limit for gpt-5-m", "limit at 12", "limit of 1-2 images", "limit: may 5 requests", "limit v1.5s", "limit -5s", "retry with a seed",
		"retry after 12345678", "The request took 30 seconds. " + strings.Repeat("x", nearby) + " limit",
	} {
		if v := read(Usual(), messageBody(t, message)); v != (Verdict{}) {
			t.Errorf("%s: %+v", message, v)
		}
	}
}

// A guess does not make an account that is used up one that waits.
func TestAGuessIsNoReasonToWaitForASpentAccount(t *testing.T) {
	body := []byte(`{"code":"insufficient_quota","message":"Your quota of 30 days is used up"}`)
	if v := read(Usual(), body); v != (Verdict{Exhausted: true, UsedUp: true}) {
		t.Errorf("%+v", v)
	}
}

func TestEachTooLargeEntryIsFound(t *testing.T) {
	for _, e := range TooLargeEntries() {
		body := fmt.Sprintf(`{"error":{"code":%q}}`, strings.ToUpper(e.Sign))
		if IsText(e.Sign) {
			body = fmt.Sprintf(`{"error":{"message":"Limit 30000, Requested 31538. It %s. Please try again in 6s","code":"rate_limit_exceeded"}}`, e.Sign)
		}
		if v := read(Usual(), []byte(body)); v != (Verdict{TooLarge: true}) {
			t.Errorf("%s: %+v", body, v)
		}
		none, err := ParseList("none")
		if err != nil || read(none, []byte(body)).TooLarge || e.Vendor == "" || e.Source == "" {
			t.Errorf("%+v, %v", e, err)
		}
	}
}
