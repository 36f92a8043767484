package docstest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// What costs a user money if it is broken, with the test that fails then.
var promises = []struct{ page, says, dir, test string }{
	{"README.md", "A POST that was sent is retried only after a 429, or if it has an `Idempotency-Key`.", "proxy/tests/retry", "TestPostIsNotRetriedAfterItWasSent"},
	{"README.md", "It never retries earlier than `Retry-After` asks.", "policy", "TestRetryAfterIsKeptAndSpread"},
	{"README.md", "If that wait does not fit into the time left, the client gets the upstream's response at once.", "proxy/tests/retry", "TestAWaitBeyondTheDeadlineGoesToTheClient"},
	{"README.md", "In t seconds an upstream gets at most n/5 + t + 10 retries that it did not ask for", "policy/budget", "TestBudgetIsNeverOverspentOverAnyStretch"},
	{"docs/reference/retries.md", "One wait of at least a second that the upstream asked for takes no token, once per request", "proxy/tests/retry", "TestAnUpstreamThatAlwaysRefusesGetsNoMoreThanTheBudget"},
	{"docs/reference/retries.md", "If all attempts fail, the client gets the upstream's last real response, whole.", "proxy/tests/retry", "TestClientGetsTheLastRealResponse"},
	{"docs/reference/retries.md", "up to 1 MiB of it is kept for a retry", "proxy/tests/bodies", "TestABodyOverTheCapIsSentOnceAndCounted"},
	{"docs/reference/retries.md", "A response with `X-Should-Retry: false` is not retried.", "proxy/tests/retry", "TestXShouldRetry"},
	{"docs/how-to/upgrade.md", "A draining process makes no more retries.", "policy", "TestDecide"},
	{"docs/how-to/hedging.md", "Only requests that may be retried are hedged", "policy", "TestMayHedge"},
	{"docs/reference/retry-after.md", "If an account is used up, there are no more retries", "proxy/tests/llm", "TestASpentAccountEndsRetries"},
	{"docs/reference/retry-after.md", "Further requests of that account are not sent to the upstream until the reset", "proxy/tests/llm", "TestAUsedUpAccountIsTriedAfterItsReset"},
	{"docs/reference/llm.md", "All statuses have it, from 400 for a malformed request to 504", "bench/llm", "TestVendorsClientsReadOwnErrors"},
}

// Each promise is where a reader finds it, and its test exists.
func TestPromisesHaveTests(t *testing.T) {
	for _, p := range promises {
		Says(t, p.page, "%s", p.says)
		dir, err := find(p.dir)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(dir + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		head, found := regexp.MustCompile(`(?m)^func `+p.test+`\(t \*testing\.T\)`), false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || head.Match(text)
		}
		if !found {
			t.Errorf("%s: no %s for: %s", p.dir, p.test, p.says)
		}
	}
}
