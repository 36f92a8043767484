package ratelimit

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheBounds(t *testing.T) {
	docstest.Says(t, "docs/how-to/rate-limit.md", "Only %.1f %% of the limit is used", 100*rateLimitUse)
	docstest.Says(t, "docs/how-to/rate-limit.md", "The pauses of %d keys are remembered", MaxPauses)
	docstest.Says(t, "docs/how-to/fleet.md", "after %d days at most", maxReset/(24*time.Hour))
}
