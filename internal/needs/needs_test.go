package needs

import (
	"os"
	"path/filepath"
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

func TestNetAdminReadsWhatIsInEffect(t *testing.T) {
	for text, want := range map[string]bool{
		"Name:\tgo\nCapPrm:\t000001ffffffffff\nCapEff:\t000001ffffffffff\n": true,
		"CapPrm:\t000001ffffffffff\nCapEff:\t0000000000001000\nCapBnd:\t0":  true,
		"CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n":            false,
		"CapPrm:\t000001ffffffffff\nCapEff:\t00000000a80425fb\n":            false, // root in a container
		"": false,
	} {
		file := filepath.Join(t.TempDir(), "status")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := netAdmin(file); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	if netAdmin("/nowhere") {
		t.Error("without the file")
	}
}
