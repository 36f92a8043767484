package needs

import (
	"strings"
	"testing"
)

// ended is what a test did before it ended.
type ended struct {
	testing.TB
	skipped, failed string
}

func (e *ended) Helper()           {}
func (e *ended) Skip(args ...any)  { e.skipped = args[0].(string) }
func (e *ended) Fatal(args ...any) { e.failed = args[0].(string) }

func TestWhatIsMissingIsSkippedUnlessRequired(t *testing.T) {
	for _, required := range []string{"", "1"} {
		t.Setenv("PROGRAMS_REQUIRED", required)
		var here, missing ended
		Program(&here, "go", "golang")
		Program(&missing, "no-such-program", "none-such")
		if here != (ended{}) {
			t.Errorf("required %q: %+v for a program that is here", required, here)
		}
		if text := missing.skipped + missing.failed; (missing.failed != "") != (required == "1") || !strings.Contains(text, "apt-get install none-such") {
			t.Errorf("required %q: %+v", required, missing)
		}
	}
}
