// Package needs reports what a test needs from the machine beside Go: other programs, or root.
//
// Without it the test is skipped, and the reason names the Debian package. With PROGRAMS_REQUIRED=1, which the gate
// sets, the test fails instead, so nothing is left out there.
package needs

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
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

// NetAdmin skips the test if it may not change how sockets and interfaces behave, as root may.
func NetAdmin(t testing.TB) {
	t.Helper()
	if !netAdmin("/proc/self/status") {
		Missing(t, "it has to run as root, or with CAP_NET_ADMIN")
	}
}

// netAdmin reports whether CAP_NET_ADMIN is in effect, from a file like /proc/self/status.
func netAdmin(status string) bool {
	const capability = 12          // linux/capability.h
	text, _ := os.ReadFile(status) // only Linux has it
	_, after, _ := strings.Cut(string(text), "\nCapEff:\t")
	line, _, _ := strings.Cut(after, "\n")
	effective, _ := strconv.ParseUint(line, 16, 64)
	return effective&(1<<capability) != 0
}

// Missing skips the test for the reason.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("PROGRAMS_REQUIRED") == "1" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
