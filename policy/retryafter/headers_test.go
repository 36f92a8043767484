package retryafter

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/policy/backoff"
)

// readHeaders reads headers of the form "Name: value", one per line.
func readHeaders(head, date string, now time.Time) *Headers {
	h := Headers{Date: []byte(date), Now: now}
	for line := range strings.SplitSeq(head, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add([]byte(strings.TrimSpace(name)), []byte(value))
		}
	}
	return &h
}

func TestRenewed(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT" // 1772366400
	for _, tc := range []struct {
		name, head, date string
		want             time.Duration
		silent           bool
	}{
		{name: "structured", head: `RateLimit: "default";r=0;t=30`, want: 30 * time.Second},
		{name: "structured, rate limit left", head: `RateLimit: "default";r=1;t=30`, silent: true},
		{name: "structured, no count", head: `RateLimit: "default";t=30`, silent: true},
		{name: "structured token", head: `RateLimit: default;r=0;t=30`, want: 30 * time.Second},
		{name: "name in another case", head: `rATElIMIT: "a";r=0;t=3`, want: 3 * time.Second},
		{name: "longest of those used up", head: `RateLimit: "burst";r=0;t=3, "day";r=0;t=60, "hour";r=7;t=900`, want: time.Minute},
		{name: "longest of those used up comes first", head: `RateLimit: "day";r=0;t=60, "burst";r=0;t=3`, want: time.Minute},
		{name: "over two lines", head: "RateLimit: \"burst\";r=0;t=3\nRateLimit: \"day\";r=0;t=60", want: time.Minute},
		{name: "other parameters", head: `RateLimit: "a";pk=:dXNlcg==:;r=0;x="q;\"";y=?1;z=1.5;n=-7;tok=a/b;bare;t=9`, want: 9 * time.Second},
		{name: "the last of a name counts", head: `RateLimit: "a";r=5;r=0;t=1;t=2`, want: 2 * time.Second},
		{name: "renewed at once", head: `RateLimit: "a";r=0;t=0`, want: 0},
		{name: "largest integer", head: `RateLimit: "a";r=0;t=999999999999999`, want: backoff.Forever},
		{name: "window of the policy", head: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";q=1;w=9, \"a\";q=10;w=60", want: time.Minute},
		{name: "t goes before the window", head: "RateLimit: \"a\";r=0;t=5\nRateLimit-Policy: \"a\";q=10;w=60", want: 5 * time.Second},
		{name: "window of another policy", head: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"b\";q=10;w=60", silent: true},
		{name: "policy alone", head: `RateLimit-Policy: "a";q=0;w=60;r=0;t=5`, silent: true},
		{name: "malformed policy", head: "RateLimit: \"a\";r=0\nRateLimit-Policy: \"a\";w=60,", silent: true},
		{name: "fraction", head: `RateLimit: "a";r=0;t=1.5`, silent: true},
		{name: "negative time", head: `RateLimit: "a";r=0;t=-5`, silent: true},
		{name: "negative count", head: `RateLimit: "a";r=-1;t=5`, silent: true},
		{name: "too many digits", head: `RateLimit: "a";r=0;t=1234567890123456`, silent: true},
		{name: "one bad member spoils the field", head: `RateLimit: "a";r=0;t=5, (1 2)`, silent: true},
		{name: "bad second line", head: "RateLimit: \"a\";r=0;t=5\nRateLimit: ;", silent: true},
		{name: "trailing comma", head: `RateLimit: "a";r=0;t=5,`, silent: true},
		{name: "no comma", head: `RateLimit: "a";r=0;t=5 "b"`, silent: true},
		{name: "upper-case key", head: `RateLimit: "a";R=0;t=5`, silent: true},
		{name: "open quote", head: `RateLimit: "a;r=0;t=5`, silent: true},
		{name: "five lines", head: strings.Repeat("RateLimit: \"a\";r=0;t=5\n", 5), silent: true},
		{name: "empty", head: "RateLimit:", silent: true},
		{name: "longer than a list may be", head: "RateLimit: \"a\";r=0;t=5" + strings.Repeat(" ", maxList), silent: true},

		{name: "draft 7", head: `RateLimit: limit=100, remaining=0, reset=50`, want: 50 * time.Second},
		{name: "draft 7, rate limit left", head: `RateLimit: limit=100, remaining=5, reset=50`, silent: true},
		{name: "draft 7 without remaining", head: `RateLimit: limit=100, reset=50`, silent: true},
		{name: "draft 7 without reset", head: `RateLimit: limit=100, remaining=0`, silent: true},

		{name: "older names", head: "RateLimit-Limit: 10\nRateLimit-Remaining: 0\nRateLimit-Reset: 7", want: 7 * time.Second},
		{name: "older names, rate limit left", head: "RateLimit-Remaining: 2\nRateLimit-Reset: 7", silent: true},
		{name: "older names with a moment", head: "RateLimit-Remaining: 0\nRateLimit-Reset: 1772366460", date: date, want: time.Minute},
		{name: "no remaining", head: "RateLimit-Reset: 7", silent: true},
		{name: "no reset", head: "RateLimit-Remaining: 0", silent: true},
		{name: "two resets", head: "RateLimit-Remaining: 0\nRateLimit-Reset: 7\nRateLimit-Reset: 8", silent: true},
		{name: "two rate limits in one", head: "RateLimit-Remaining: 0, 5\nRateLimit-Reset: 7", silent: true},

		{name: "X, seconds from now", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60", want: time.Minute},
		{name: "X, a moment", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", date: date, want: 30 * time.Second},
		{name: "X, a moment without Date", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", want: 30 * time.Second},
		{name: "X, a moment by a skewed clock", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1583064030",
			date: "Sun, 01 Mar 2020 12:00:00 GMT", want: 30 * time.Second},
		{name: "X, a moment that is over", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366400", want: 0},
		{name: "X, last that is seconds from now", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 999999999", want: 999999999 * time.Second},
		{name: "X, first that is a moment", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1000000000", want: 0},
		{name: "X, milliseconds since 1970", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430000", want: 30 * time.Second},
		{name: "X, milliseconds between two seconds", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430001", date: date, want: 30*time.Second + time.Millisecond},
		{name: "X, first that is in milliseconds", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1000000000000", want: 0},
		{name: "X, neither seconds nor milliseconds", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 999999999999", silent: true},
		{name: "X, milliseconds beyond the year 5138", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 100000000000000", silent: true},
		{name: "X, moment with a fraction", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430.25", date: date, want: 30*time.Second + 250*time.Millisecond},
		{name: "X, fraction", head: "X-RateLimit-Remaining: 0.0\nX-RateLimit-Reset: 1.001", want: 1001 * time.Millisecond},
		{name: "X, fraction goes up", head: "X-RateLimit-Remaining: 0.0\nX-RateLimit-Reset: 1.0000000001", want: time.Second + 1},
		{name: "X, less than one left is not none", head: "X-RateLimit-Remaining: 0.5\nX-RateLimit-Reset: 3", silent: true},
		{name: "X, the other spelling", head: "x-rate-limit-remaining: 0\nx-rate-limit-reset: 3", want: 3 * time.Second},
		{name: "X, a date", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sun, 01 Mar 2026 12:00:30 GMT", want: 30 * time.Second},
		{name: "X, a date as JavaScript prints it", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sun Mar 01 2026 13:00:30 GMT+0100 (Central European Standard Time)", want: 30 * time.Second},
		{name: "X, too long", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: " + strings.Repeat("0", maxValue) + "5", silent: true},
		{name: "X, negative", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: -5", silent: true},
		{name: "X, empty", head: "X-RateLimit-Remaining:\nX-RateLimit-Reset:", silent: true},
		{name: "X, point without digits", head: "X-RateLimit-Remaining: 0.\nX-RateLimit-Reset: 5", silent: true},
		{name: "X, unknown suffix", head: "X-RateLimit: 0\nX-RateLimit-Policy: 1\nX-RateLimit-Resets: 3", silent: true},

		{name: "longest of structured and X", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60\nRateLimit: \"a\";r=0;t=5", want: time.Minute},
		{name: "longest of X and structured", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 5\nRateLimit: \"a\";r=0;t=60", want: time.Minute},
		{name: "X where structured has rate limit left", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 60\nRateLimit: \"a\";r=9;t=5", want: time.Minute},
		{name: "nothing", head: "Content-Length: 5\nX-Rate: 0\nRate: 5", silent: true},
	} {
		got, ok := readHeaders(tc.head, tc.date, someDay).Renewed()
		if ok == tc.silent || got != tc.want {
			t.Errorf("%s: %v, %v; want %v", tc.name, got, ok, tc.want)
		}
	}
}

// Each row of the table, as its source sends it.
func TestEachRow(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT" // 1772366400
	seen := map[string]bool{}
	for _, tc := range []struct {
		row, head string
		want      time.Duration
		silent    bool
	}{
		{row: "Retry-After", head: "retry-after: 12", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: 3.5", want: 3500 * time.Millisecond},
		{row: "Retry-After", head: "Retry-After: Sun, 01 Mar 2026 12:00:30 GMT", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: 5\nRetry-After: 7\nRetry-After: 6", want: 7 * time.Second},
		{row: "Retry-After", head: "Retry-After: soon", silent: true},
		{row: "Retry-After-Ms", head: "retry-after-ms: 1250", want: 1250 * time.Millisecond},
		{row: "Retry-After-Ms", head: "retry-after-ms: 0.5", want: 500 * time.Microsecond},
		{row: "Retry-After-Ms", head: "retry-after-ms: -1", silent: true},
		{row: "Retry-After-Ms", head: "retry-after-ms: inf", silent: true},
		{row: "Retry-After-Ms", head: "retry-after-ms: " + strings.Repeat("9", 40), want: backoff.Forever},
		{row: "Retry-After-Ms", head: "retry-after-ms: " + strings.Repeat("9", 81), silent: true},
		{row: "X-Ms-Retry-After-Ms", head: "x-ms-retry-after-ms: 88", want: 88 * time.Millisecond},
		{row: "X-Amz-Retry-After", head: "x-amz-retry-after: 1500", want: 1500 * time.Millisecond},
		{row: "X-RateLimit-Retry-After", head: "X-RateLimit-Retry-After: 59", want: 59 * time.Second},
		{row: "X-RateLimit-TimeRemaining", head: "x-ratelimit-timeremaining: 30\nx-ratelimit-type: UserByModelByDay", want: 30 * time.Second},
		{row: "X-Codex-*-Reset-After-Seconds", head: "x-codex-primary-used-percent: 100\nx-codex-primary-reset-after-seconds: 30\nx-codex-secondary-used-percent: 40\nx-codex-secondary-reset-after-seconds: 300000", want: 30 * time.Second},
		{row: "RateLimit", head: "RateLimit: \"default\";r=0;t=30", want: 30 * time.Second},
		{row: "RateLimit-Reset", head: "RateLimit-Remaining: 0\nRateLimit-Reset: 7", want: 7 * time.Second},
		{row: "X-RateLimit-Reset", head: "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1772366460", want: time.Minute},
		{row: "X-RateLimit-Reset", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366460500", want: time.Minute + 500*time.Millisecond},
		{row: "X-RateLimit-Reset", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 42", want: 42 * time.Second},
		{row: "X-Rate-Limit-Reset", head: "x-rate-limit-remaining: 0\nx-rate-limit-reset: 1772366460", want: time.Minute},
		{row: "X-RateLimit-Reset-After", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset-After: 1.25\nX-RateLimit-Bucket: abcd1234", want: 1250 * time.Millisecond},
		{row: "X-RateLimit-Reset-After", head: "X-RateLimit-Remaining: 4\nX-RateLimit-Reset-After: 1.25", silent: true},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s", want: 6 * time.Minute},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 88ms\nx-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 4.2s", want: 4200 * time.Millisecond},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 88ms\nx-ratelimit-remaining-requests: 7\nx-ratelimit-reset-requests: 4.2s", want: 88 * time.Millisecond},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-tokens: 88ms", silent: true},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 1d2h", want: 26 * time.Hour},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 2m59.56s", want: 179560 * time.Millisecond},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-tokens: -1\nx-ratelimit-reset-tokens: 0", silent: true},
		{row: "X-RateLimit-Reset-*", head: "x-ratelimit-remaining-requests-day: 0\nx-ratelimit-reset-requests-day: 33011.382867", want: 33011382867 * time.Microsecond},
		{row: "X-RateLimit-*-Reset", head: "X-RateLimit-Requests-Remaining: 0\nX-RateLimit-Requests-Reset: 1772366402500", want: 2500 * time.Millisecond},
		{row: "X-RateLimit-*-Reset", head: "x-ratelimit-minute-remaining: 0\nx-ratelimit-minute-reset: 1772366420\nx-ratelimit-day-remaining: 9\nx-ratelimit-day-reset: 1772409600", want: 20 * time.Second},
		{row: "Anthropic-RateLimit-*-Reset", head: "anthropic-ratelimit-requests-remaining: 0\nanthropic-ratelimit-requests-reset: 2026-03-01T12:00:17Z", want: 17 * time.Second},
		{row: "Anthropic-RateLimit-*-Reset", head: "anthropic-ratelimit-input-tokens-remaining: 0\nanthropic-ratelimit-input-tokens-reset: 2026-03-01T12:00:17Z\n" +
			"anthropic-ratelimit-output-tokens-remaining: 0\nanthropic-ratelimit-output-tokens-reset: 2026-03-01T12:00:21Z\n" +
			"anthropic-ratelimit-tokens-remaining: 8000\nanthropic-ratelimit-tokens-reset: 2026-03-01T12:00:59Z", want: 21 * time.Second},
		{row: "Anthropic-RateLimit-Unified-Reset", head: "anthropic-ratelimit-unified-status: rejected\nanthropic-ratelimit-unified-reset: 1772366460", want: time.Minute},
		{row: "Anthropic-RateLimit-Unified-Reset", head: "anthropic-ratelimit-unified-status: Rejected\nanthropic-ratelimit-unified-reset: 2026-03-01T12:01:00Z", want: time.Minute},
		{row: "Anthropic-RateLimit-Unified-Reset", head: "anthropic-ratelimit-unified-status: allowed_warning\nanthropic-ratelimit-unified-reset: 1772366460", silent: true},
		{row: "Anthropic-RateLimit-Unified-Reset", head: "anthropic-ratelimit-unified-reset: 1772366460", silent: true},
		{row: "Anthropic-RateLimit-Unified-*-Reset", head: "anthropic-ratelimit-unified-5h-status: rejected\nanthropic-ratelimit-unified-5h-reset: 1772366430\n" +
			"anthropic-ratelimit-unified-7d-status: allowed\nanthropic-ratelimit-unified-7d-reset: 1772409600", want: 30 * time.Second},
		{row: "*-Retry-After", head: "x-retry-after: 12", want: 12 * time.Second},
		{row: "*-Retry-After", head: "llm_provider-retry-after: 12", want: 12 * time.Second},
		{row: "*-Retry-After", head: "Openai-Retry-After: 12", want: 12 * time.Second},
		{row: "*-Retry-After-Ms", head: "X-Upstream-Retry-After-Ms: 1500", want: 1500 * time.Millisecond},
		{row: "*-Retry-After-Seconds", head: "X-Rate-Limit-Retry-After-Seconds: 12", want: 12 * time.Second},
		{row: "*-Retry-After-Seconds", head: "x_rate_limit_retry_after_seconds: 12", want: 12 * time.Second},
		{row: "none", head: "retry_after_seconds: 12", want: 12 * time.Second},
		{row: "X-RateLimit-Reset-*", head: "llm_provider-x-ratelimit-remaining-tokens: 0\nllm_provider-x-ratelimit-reset-tokens: 88ms", want: 88 * time.Millisecond},
		{row: "Retry-After", head: "Retry_After: 12", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: 12, 12", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: 5, 12", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: \"12\"", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: 12; comment", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: 12s", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: 1m30s", want: 90 * time.Second},
		{row: "Retry-After", head: "Retry-After: 12 seconds", want: 12 * time.Second},
		{row: "Retry-After", head: "Retry-After: PT1M30S", want: 90 * time.Second},
		{row: "Retry-After", head: "Retry-After: 00:01:30", want: 90 * time.Second},
		{row: "Retry-After", head: "Retry-After: 1772366430", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: 1772366430000", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: 2026-03-01T12:00:30Z", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: Sun, 01 Mar 2026 12:00:30 UTC", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: Sun, 01 Mar 2026 12:00:30 +0000", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: Sun, 01 Mar 2026 12:00:30 GMT, 45", want: 45 * time.Second},
		{row: "Retry-After", head: "Retry-After: Sun, 1 Mar 2026 12:00:30 GMT", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: 1,000", want: 1000 * time.Second},
		{row: "Retry-After", head: "Retry-After: in 30 seconds", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: Please try again in 30 seconds.", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: [30]", want: 30 * time.Second},
		{row: "Retry-After", head: "Retry-After: '30'", want: 30 * time.Second},
		{row: "X-RateLimit-Reset", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366460000000", want: time.Minute + time.Microsecond},
		{row: "X-RateLimit-Reset", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30 seconds", want: 30 * time.Second},
		{row: "X-RateLimit-Reset", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: Sun Mar 01 2026 13:00:30 GMT+0100 (Central European Standard Time)", want: 30 * time.Second},
		{row: "none", head: "X-Retry-In: 30", want: 30 * time.Second},
		{row: "none", head: "RetryAfterMs: 1500", want: 1500 * time.Millisecond},
		{row: "none", head: "X-Backoff: 30", want: 30 * time.Second},
		{row: "none", head: "X-Sib-RateLimit-Remaining: 0\nX-Sib-RateLimit-Reset: 30", want: 30 * time.Second},
		{row: "none", head: "ratelimitbysize-remaining: 0\nratelimitbysize-reset: 30", want: 30 * time.Second},
		{row: "none", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset-In: 30", want: 30 * time.Second},
		{row: "none", head: "X-RateLimit-Remaining: 0\nX-RateLimit-Reset-Ms: 1500", want: 1500 * time.Millisecond},
		{row: "none", head: "X-Rate-Limit-Remaining: 0\nX-Rate-Limit-Reset-After: 30", want: 30 * time.Second},
		{row: "none", head: "X-Quota-Remaining: 0\nX-Quota-Reset-At: 2026-03-01T12:00:30Z", want: 30 * time.Second},
		{row: "none", head: "X-Quota-Remaining: 5\nX-Quota-Reset: 30", silent: true},
		{row: "none", head: "X-Quota-Reset: 30", silent: true},
		{row: "none", head: "X-Tokens-Remaining: 0\nX-Requests-Reset: 30", silent: true},
		{row: "none", head: "X-Retry-Count: 3\nX-Retries-Remaining: 0", silent: true},
		{row: "none", head: "X-Retry-In: soon", silent: true},
		{row: "none", head: "X-Retry-In: -5", silent: true},
		{row: "Retry-After", head: "Retry-After: 12 apples", silent: true},
		{row: "Retry-After", head: "Retry-After: 12, soon", silent: true},
		{row: "Retry-After", head: "Retry-After: -5", silent: true},
		{row: "Retry-After", head: "Retry-After: ,", silent: true},
		{row: "Retry-After-Ms", head: "retry-after-ms: 1250, 1250", want: 1250 * time.Millisecond},
		{row: "RateLimit-Reset", head: "RateLimit-Remaining: 0, 0\nRateLimit-Reset: 7, 7", want: 7 * time.Second},
		{row: "RateLimit-Reset", head: "RateLimit-Remaining: 0\nRateLimit-Remaining: 0\nRateLimit-Reset: 7;w=60\nRateLimit-Reset: 7;w=60", want: 7 * time.Second},
		{row: "RateLimit-Reset", head: "RateLimit-Remaining: \"0\"\nRateLimit-Reset: \"7\"", want: 7 * time.Second},
	} {
		h := readHeaders(tc.head, date, someDay)
		d, ok := h.Asked()
		if other, too := h.Renewed(); too {
			if ok {
				t.Errorf("%s: read as an order and as a rate limit", tc.head)
			}
			d, ok = other, true
		}
		if ok == tc.silent || d != tc.want {
			t.Errorf("%s:\n%s\n%v, %v; want %v", tc.row, tc.head, d, ok, tc.want)
		}
		seen[tc.row] = true
	}
	for _, r := range Rows() {
		if !seen[r.Header] {
			t.Errorf("%s has no case", r.Header)
		}
		if r.Source == "" || r.Form.String() == "invalid" || !r.Order() && strings.Count(r.Header, "*") != strings.Count(r.Left, "*") {
			t.Errorf("row %+v", r)
		}
		for _, name := range []string{r.Header, r.Left, strings.ToUpper(r.Header)} {
			if name != "" && !mayMatter([]byte(name)) && !ordersRetry([]byte(name)) {
				t.Errorf("Add does not look at %s", name)
			}
		}
	}
}

func TestAnOrderGoesBeforeRateLimits(t *testing.T) {
	h := readHeaders("Retry-After: 2\nRetry-After-Ms: 2500\nX-RateLimit-Remaining-Requests: 0\nX-RateLimit-Reset-Requests: 6m0s", "", someDay)
	if d, ok := h.Asked(); !ok || d != 2500*time.Millisecond {
		t.Errorf("asked for %v, %v", d, ok)
	}
	if d, ok := h.Renewed(); !ok || d != 6*time.Minute {
		t.Errorf("renewed after %v, %v", d, ok)
	}
}

func TestShouldRetry(t *testing.T) {
	for head, want := range map[string][2]bool{
		"x-should-retry: true": {true, false}, "X-Should-Retry: FALSE": {false, true}, "x-should-retry: 1": {}, "x-should-retry:": {}, "x-should-retryable: true": {},
		"x-should-retry: true\nx-should-retry: false": {false, true}, "x-should-retry: false\nx-should-retry: true": {false, true},
		"x-should-retry: true\nx-should-retry: true": {true, false}, "Retry-After: 5": {},
	} {
		yes, no := readHeaders(head, "", someDay).ShouldRetry()
		if got := [2]bool{yes, no}; got != want {
			t.Errorf("%q: %v, want %v", head, got, want)
		}
	}
}

func TestHeadersBeyondTheBoundAreIgnored(t *testing.T) {
	var head strings.Builder
	for i := range maxPairs + 5 {
		fmt.Fprintf(&head, "X-RateLimit-Remaining-%d: 0\nX-RateLimit-Reset-%d: %d\n", i, i, i+1)
	}
	if d, ok := readHeaders(head.String(), "", someDay).Renewed(); !ok || d != maxPairs*time.Second {
		t.Errorf("%v, %v", d, ok)
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "1s": time.Second, "6m0s": 6 * time.Minute, "4.2s": 4200 * time.Millisecond, "88ms": 88 * time.Millisecond, "1d2h": 26 * time.Hour, "1h30m": 90 * time.Minute,
		"1.5d": 36 * time.Hour, "0.1m": 6 * time.Second, "12us": 12 * time.Microsecond, "12µs": 12 * time.Microsecond, "7ns": 7, "0.5ns": 1, "1.0000000001s": time.Second + 1,
		"34.074824224s": 34074824224, "0.0000000000000000001d": 86400, "0.9999999999s": time.Second, "106751d": 106751 * 24 * time.Hour, "106752d": backoff.Forever, "9223372036s1h": backoff.Forever,
		"99999999999999999999h": backoff.Forever, "1m1m": 2 * time.Minute,
	} {
		if got, ok := ParseDuration([]byte(text)); !ok || got != want {
			t.Errorf("%s: %v (%d), %v; want %v", text, got, got, ok, want)
		}
	}
	for _, text := range []string{"", "5", "s", "-1s", "+1s", "1 s", "1s ", "1.s", ".5s", "1.5.5s", "1y", "1S", "1e3s", "0x1s", "1s,", "infs", strings.Repeat("1s", 41)} {
		if got, ok := ParseDuration([]byte(text)); ok || got != 0 {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}

// ParseDuration parses what Go prints.
func TestParseDurationReadsWhatGoPrints(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		d := time.Duration(r.Int64()) >> r.IntN(63)
		if got, ok := ParseDuration([]byte(d.String())); !ok || got != d {
			t.Fatalf("%s: %v, %v", d, got, ok)
		}
	}
}

func TestParseRFC3339(t *testing.T) {
	for _, text := range []string{"2026-03-01T12:00:30Z", "2026-03-01t12:00:30z", "2026-03-01 12:00:30Z", "2026-03-01T12:00:30.5Z", "2026-03-01T12:00:30.123456789+01:00", "2026-12-31T23:59:59-23:59", "2024-02-29T00:00:00+00:00"} {
		want, err := time.Parse(time.RFC3339Nano, strings.ToUpper(strings.Replace(text, " ", "T", 1)))
		if got, ok := parseRFC3339([]byte(text)); err != nil || !ok || !got.Equal(want) {
			t.Errorf("%s: %v, %v; want %v, %v", text, got, ok, want, err)
		}
	}
	for _, text := range []string{"", "2026-03-01", "2026-03-01T12:00:30", "2026-03-01T12:00Z", "2026-13-01T12:00:30Z", "2026-00-01T12:00:30Z", "2026-02-30T12:00:30Z", "2026-03-01T24:00:30Z",
		"2026-03-01T12:00:30.Z", "2026-03-01T12:00:30,5Z", "2026-03-01T12:00:30+0100", "2026-03-01T12:00:30ZZ", "26-03-01T12:00:30Z", "2026/03/01T12:00:30Z", "2026-03-01T12:00:30.5", "2026-03-01T12:00:61Z", "2026-03-01T12:60:00Z", "2026-03-01T12:00:60"} {
		if got, ok := parseRFC3339([]byte(text)); ok {
			t.Errorf("%q: %v", text, got)
		}
	}
	for text, want := range map[string]string{"2016-12-31T23:59:60Z": "2017-01-01T00:00:00Z", "2016-12-31t23:59:60.25z": "2017-01-01T00:00:00.25Z", "2017-01-01 00:59:60+01:00": "2017-01-01T00:00:00Z"} {
		if got, ok := parseRFC3339([]byte(text)); !ok || got.UTC().Format(time.RFC3339Nano) != want {
			t.Errorf("leap second %s: %v, %v; want %v", text, got, ok, want)
		}
	}
}

// What is read of a hostile RateLimit-Policy is bounded, however many rate limits refer to it.
func TestPoliciesAreReadOnceAndUpToABound(t *testing.T) {
	var many strings.Builder
	for i := range maxPairs + 1 {
		fmt.Fprintf(&many, "\"%d\";q=5;w=%d,", i, i+1)
	}
	rules := "RateLimit-Policy: " + strings.TrimSuffix(many.String(), ",")
	for i, want := range map[int]time.Duration{0: time.Second, maxPairs - 1: maxPairs * time.Second} {
		if d, ok := readHeaders(fmt.Sprintf("RateLimit: \"%d\";r=0\n", i)+rules, "", someDay).Renewed(); !ok || d != want {
			t.Errorf("policy %d: %v, %v; want %v", i, d, ok, want)
		}
	}
	if d, ok := readHeaders(fmt.Sprintf("RateLimit: \"%d\";r=0\n", maxPairs)+rules, "", someDay).Renewed(); ok {
		t.Errorf("a policy beyond the bound: %v", d)
	}
}

// alone returns the wait of each order by itself, and of each rate limit whose two headers occur
// once.
func alone(head, date string, now time.Time) (asked, renewed []time.Duration) {
	lines := strings.Split(head, "\n")
	for i, line := range lines {
		h := readHeaders(line, date, now)
		if d, ok := h.Asked(); ok {
			asked = append(asked, d)
		}
		for _, other := range lines[i+1:] {
			if d, ok := readHeaders(line+"\n"+other, date, now).Renewed(); ok && !strings.Contains(strings.ToLower(line+other), "ratelimit:") {
				renewed = append(renewed, d)
			}
		}
	}
	return asked, renewed
}

// With many headers at once, the wait is never shorter than the strictest of them.
func TestNeverEarlierThanTheStrictest(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(all ...string) string { return all[r.IntN(len(all))] }
	value := func() string {
		n := r.IntN(100_000)
		return pick(fmt.Sprint(n), fmt.Sprintf("%d.%03d", n/100, n%1000), fmt.Sprint(1772366400+n), fmt.Sprint(1772366400000+int64(n)), (time.Duration(n) * time.Millisecond).String(),
			someDay.Add(time.Duration(n)*time.Millisecond).Format(time.RFC3339Nano), someDay.Add(time.Duration(n)*time.Second).Format(http.TimeFormat), "soon", "", "99999999999999999999")
	}
	told := 0
	for range 20_000 {
		var lines []string
		for range 1 + r.IntN(3) {
			lines = append(lines, pick("Retry-After", "Retry-After-Ms", "X-Ms-Retry-After-Ms", "X-Amz-Retry-After", "X-RateLimit-Retry-After")+": "+value())
		}
		for _, i := range r.Perm(6)[:r.IntN(6)] {
			remaining := []string{"RateLimit-Remaining", "X-RateLimit-Remaining", "X-Rate-Limit-Remaining", "X-RateLimit-Remaining-Tokens", "X-RateLimit-Day-Remaining", "Anthropic-RateLimit-Tokens-Remaining"}[i]
			lines = append(lines, remaining+": "+pick("0", "0", "0.0", "3", "none"), strings.Replace(remaining, "Remaining", "Reset", 1)+": "+value())
		}
		r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		head, date := strings.Join(lines, "\n"), pick("", "Sun, 01 Mar 2026 12:00:00 GMT", "Sun, 01 Mar 2026 11:59:59 GMT")
		h := readHeaders(head, date, someDay)
		wantAsked, wantRenewed := alone(head, date, someDay)
		asked, hasAsked := h.Asked()
		renewed, hasRenewed := h.Renewed()
		if hasAsked != (len(wantAsked) > 0) || hasAsked && asked != slices.Max(wantAsked) {
			t.Fatalf("%s\nasked for %v; each alone %v", head, asked, wantAsked)
		}
		if hasRenewed != (len(wantRenewed) > 0) || hasRenewed && renewed != slices.Max(wantRenewed) {
			t.Fatalf("%s\nrenewed after %v; each alone %v", head, renewed, wantRenewed)
		}
		if hasAsked && hasRenewed {
			told++
		}
	}
	if told < 5000 {
		t.Errorf("both told in %d cases only", told)
	}
}

// For any input there is no panic, no negative wait, no wait for a limit that is not exhausted, and
// none earlier than an order.
func FuzzHeaders(f *testing.F) {
	for _, head := range []string{
		`RateLimit: "a";r=0;t=30`, "RateLimit: a;r=0\nRateLimit-Policy: a;w=5", "RateLimit: limit=1, remaining=0, reset=5",
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1772366430", "RateLimit-Remaining: 0.0\nRateLimit-Reset: 1.5",
		`RateLimit: "a\"";r=0;t=1;pk=:YQ==:;x=?0, "b";r=0;t=2`,
		"x-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 1d2h3m4.5s6ms", "anthropic-ratelimit-tokens-remaining: 0\nanthropic-ratelimit-tokens-reset: 2026-03-01T12:00:30.5+01:00",
		"Retry-After: 5\nretry-after-ms: 700.5\nx-amz-retry-after: 99999999999999999999\nx-should-retry: true",
	} {
		f.Add(head, "Sun, 01 Mar 2026 12:00:00 GMT", int64(1772366400))
	}
	f.Fuzz(func(t *testing.T, head, date string, unix int64) {
		now := time.Unix(unix%(1<<38), 0)
		h := readHeaders(head, date, now)
		d, ok := h.Renewed()
		if d < 0 || !ok && d != 0 {
			t.Errorf("%v, %v", d, ok)
		}
		if ok && !strings.Contains(head, "0") && !h.hasGuessed {
			t.Errorf("%v though no count is 0", d)
		}
		asked, hasAsked := h.Asked()
		if asked < 0 || !hasAsked && asked != 0 {
			t.Errorf("asked %v, %v", asked, hasAsked)
		}
		if yes, no := h.ShouldRetry(); yes && no {
			t.Error("yes and no")
		}
		if strings.Count(head, "\n") > 20 {
			return
		}
		each, _ := alone(head, date, now)
		for _, one := range each {
			if asked < one {
				t.Errorf("asked %v, one order alone %v", asked, one)
			}
		}
	})
}

// Every parsed duration equals the result of unbounded arithmetic, rounded up.
func FuzzDuration(f *testing.F) {
	for _, text := range []string{"6m0s", "4.2s", "88ms", "1d2h", "34.074824224s", "0.0000000001ns", "99999999999999999999d", "1.5"} {
		f.Add(text)
	}
	nanos := map[string]int64{"ns": 1, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 36e11, "d": 864e11}
	number := regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h|d)`)
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := ParseDuration([]byte(text))
		if got < 0 || !ok && got != 0 {
			t.Fatalf("%q: %v, %v", text, got, ok)
		}
		if !ok {
			return
		}
		exact, parts := new(big.Rat), number.FindAllStringSubmatch(text, -1)
		for _, m := range parts {
			part, _ := new(big.Rat).SetString(m[1])
			exact.Add(exact, part.Mul(part, new(big.Rat).SetInt64(nanos[m[2]])))
		}
		if most := new(big.Rat).SetInt64(int64(backoff.Forever)); exact.Cmp(most) > 0 {
			exact = most
		}
		over := new(big.Rat).Sub(new(big.Rat).SetInt64(int64(got)), exact)
		if allowed := int64(len(parts)) * (1 + 86400); over.Sign() < 0 || got != backoff.Forever && over.Cmp(new(big.Rat).SetInt64(allowed)) > 0 {
			t.Fatalf("%q: %d, exactly %v", text, got, exact.FloatString(3))
		}
	})
}

// A failed response has about twenty headers; two or three of them concern a wait.
func BenchmarkHeaders(b *testing.B) {
	var names, values [][]byte
	for _, line := range strings.Split(`Alt-Svc: h3=":443"; ma=86400
Access-Control-Expose-Headers: X-Request-ID
Cf-Cache-Status: DYNAMIC
Cf-Ray: 9a1f0c0c0c0c0c0c-FRA
Openai-Organization: org
Openai-Processing-Ms: 25
Openai-Version: 2020-10-01
Strict-Transport-Security: max-age=31536000; includeSubDomains; preload
X-Content-Type-Options: nosniff
X-Envoy-Upstream-Service-Time: 26
X-Ratelimit-Limit-Requests: 500
X-Ratelimit-Limit-Tokens: 30000
X-Ratelimit-Remaining-Requests: 499
X-Ratelimit-Remaining-Tokens: 0
X-Ratelimit-Reset-Requests: 120ms
X-Ratelimit-Reset-Tokens: 6.1s
Retry-After: 7
Retry-After-Ms: 6100`, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		names, values = append(names, []byte(name)), append(values, []byte(value))
	}
	b.ReportAllocs()
	for b.Loop() {
		h := Headers{Now: someDay}
		for i := range names {
			h.Add(names[i], values[i])
		}
		if d, _ := h.Asked(); d != 7*time.Second {
			b.Fatal(d)
		}
	}
}

func TestLimitsRate(t *testing.T) {
	for head, want := range map[string]bool{
		"": false,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1767225600":    true,
		"X-RateLimit-Remaining: 0":                                   true,
		"X-RateLimit-Remaining: 4999\nX-RateLimit-Reset: 1767225600": false,
		"X-RateLimit-Remaining: 4999\nRetry-After: 60":               true,
		"Retry-After: 0":    true,
		"Retry-After: soon": false,
		"X-RateLimit-Remaining: 0\nX-RateLimit-Remaining: 1":                                   false,
		"X-RateLimit-Remaining: none":                                                          false,
		"X-RateLimit-Remaining-Tokens: 0\nX-RateLimit-Remaining-Requests: 7":                   true,
		"RateLimit: \"default\";r=0;t=30":                                                      true,
		"RateLimit: \"default\";r=0":                                                           true,
		"RateLimit: \"default\";r=1;t=30":                                                      false,
		"X-RateLimit-Limit: 0\nX-RateLimit-Reset: 0\nX-RateLimit-Used: 0\nX-Ratelimit-Cost: 0": false,
	} {
		if got := readHeaders(head, "", someDay).LimitsRate(); got != want {
			t.Errorf("%q: %v", head, got)
		}
	}
}
