package tokens

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesWhatDataCounts(t *testing.T) {
	docstest.Says(t, "docs/reference/llm.md", "Base64 data, such as an image, is %d tokens", dataTokens)
}
