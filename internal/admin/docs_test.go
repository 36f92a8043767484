package admin

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheBoundsOfDrained(t *testing.T) {
	docstest.Says(t, "docs/reference/admin.md", "if no drain begins within %d s. 503 if too many such requests wait: more than %d from one address or %d in all",
		noticed/time.Second, mostAskingFromOne, mostAsking)
}
