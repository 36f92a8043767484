package upstream

import (
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheDefaults(t *testing.T) {
	docstest.Says(t, "docs/reference/settings.md", "After %d consecutive failures", DefaultEjectAfter)
	docstest.Says(t, "docs/reference/settings.md", "an endpoint is ejected for %d s, the nth time n times as long, up to %d minutes",
		DefaultEjectFor/time.Second, maxEjectionFactor*DefaultEjectFor/time.Minute)
	docstest.Says(t, "docs/reference/settings.md", "each is also checked every %d s", DefaultHealthInterval/time.Second)
	docstest.Says(t, "docs/reference/metrics.md", "all streams of %d HTTP/2 connections", mostHTTP2Conns)
	docstest.Says(t, "docs/how-to/migrating.md", "Connecting may take %d s", DefaultDialTimeout/time.Second)
}
