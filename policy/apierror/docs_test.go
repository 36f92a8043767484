package apierror

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheBounds(t *testing.T) {
	docstest.Says(t, "docs/reference/retry-after.md",
		"its first %d KiB are searched, and %d KiB of messages", MaxBytes>>10, maxMessages>>10)
}
