package retryafter

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheBounds(t *testing.T) {
	docstest.Says(t, "docs/reference/retry-after.md",
		"values of more than %d bytes, `RateLimit` of more than %d KiB, and rate limits beyond the first %d of a response are ignored",
		maxValue, maxList>>10, maxPairs)
}
