package config

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheConstants(t *testing.T) {
	words := map[int]string{9: "nine", 10: "ten", 11: "eleven"}
	docstest.Says(t, "docs/reference/logs.md", "at most %s per minute and route", words[gaveUpLogPerMinute])
	docstest.Says(t, "docs/reference/metrics.md", "larger than %d KiB, or more than %d", maxHeaderBytes>>10, maxHeaders)
	docstest.Says(t, "docs/reference/settings.md", "a token of at least %d bytes", minAdminToken)
}
