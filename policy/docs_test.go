package policy

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheFreeRetries(t *testing.T) {
	words := map[int]string{9: "nine", 10: "ten", 11: "eleven"}
	docstest.Says(t, "docs/reference/retries.md", "Up to %s more are free", words[maxFreeRetries])
}
