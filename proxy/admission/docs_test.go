package admission

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheBounds(t *testing.T) {
	docstest.Says(t, "docs/how-to/rate-limit.md", "A process remembers %d values", MaxRateLimitKeys)
	words := map[int]string{5: "five", 6: "six", 7: "seven"}
	docstest.Says(t, "docs/reference/logs.md", "at most %s per minute and upstream", words[DialLinesPerMinute])
	docstest.Says(t, "docs/reference/settings.md", "except up to %dms for a lease", leaseTakes/time.Millisecond)
}
