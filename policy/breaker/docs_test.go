package breaker

import (
	"testing"

	"github.com/retryproxy/retryproxy/internal/docstest"
)

func TestTheDocumentationStatesTheTimeBetweenProbes(t *testing.T) {
	r := &rhythms
	docstest.Says(t, "docs/reference/settings.md",
		"auto: %v to %v after connections that were refused or lost, %v to %v after others that failed, %v to %v after responses, %v to %v in a silence",
		r[OpenedByRefused].fail, r[OpenedByRefused].failMax, r[OpenedByDial].fail, r[OpenedByDial].failMax,
		r[OpenedByFailing].fail, r[OpenedByFailing].failMax, r[OpenedByStall].fail, r[OpenedByStall].failMax)
	docstest.Says(t, "docs/explanation/breaker.md", "The next probe is due at most %d ms after a refused connection", r[OpenedByRefused].failMax.Milliseconds())
	if r[OpenedByLost] != r[OpenedByRefused] {
		t.Error("a lost connection is not treated as a refused one")
	}
}
