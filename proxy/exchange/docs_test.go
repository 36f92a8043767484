package exchange

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesWhenAPingIsPassedOn(t *testing.T) {
	docstest.Says(t, "docs/reference/llm.md", "A comment or ping that arrives later than %d s is passed on at once", keepAliveAfter/time.Second)
}
