package policy

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheFreeRetries(t *testing.T) {
	words := map[int]string{9: "nine", 10: "ten", 11: "eleven"}
	docstest.Says(t, "docs/reference/retries.md", "Further ones, at most %s, are free", words[maxFreeRetries])
}
