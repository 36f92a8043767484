package atrest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// mapped is how much of the program's file the process has in memory, in KiB.
func mapped(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	n, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The program goes on, with less of its file in memory.
func TestLettingGoOfTheProgramsPages(t *testing.T) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil || len(exe) < 1<<20 {
		t.Fatal(len(exe), err)
	}
	before := mapped(t)
	LetGo()
	if after := mapped(t); after >= before {
		t.Errorf("%d KiB mapped, %d before", after, before)
	}
}
