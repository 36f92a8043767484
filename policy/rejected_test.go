package policy

import (
	"testing"

	"github.com/retryproxy/retryproxy/policy/status"
)

func mustRejected(t *testing.T, list string) status.Set {
	t.Helper()
	set, err := status.ParseRejected(list)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestBeyondListsRejectedStatusesThatAreNoFailures(t *testing.T) {
	on, err := ParseRetryOn("5xx,reset")
	if err != nil {
		t.Fatal(err)
	}
	if got := on.NoFailures(mustRejected(t, "429,503")); len(got) != 1 || got[0] != "429" {
		t.Errorf("beyond RETRY_ON: %v, want 429", got)
	}
}
