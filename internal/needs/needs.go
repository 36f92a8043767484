// Package needs reports what a test needs from the machine beside Go: other programs, or root.
//
// Without it the test is skipped, and the reason names the Debian package. With PROGRAMS_REQUIRED=1, which the gate
// sets, the test fails instead, so nothing is left out there.
package needs

import (
	"os"
	"os/exec"
	"testing"
)

// Program skips the test if the program is not in PATH.
func Program(t testing.TB, program, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		Missing(t, program+" is not installed (Debian: apt-get install "+debianPackage+")")
	}
}

// Root skips the test if it does not run as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "it has to run as root")
	}
}

// Missing skips the test for the reason.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("PROGRAMS_REQUIRED") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
