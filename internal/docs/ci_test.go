package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// script writes an executable and returns its path.
func script(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return path
}

// Where the database of vulnerabilities cannot be reached, the snapshot is asked and that is noted; a vulnerability found in
// either fails.
func TestVulnerabilitiesAreLookedForOffline(t *testing.T) {
	const (
		found   = "echo 'Vulnerability #1'; exit 3"
		none    = "echo No vulnerabilities found."
		offline = "case \"$*\" in *'-db file://'*) [ -s \"${2#file://}/ID/GO-2026-5030.json\" ] && { %s; } ;; *) echo 'govulncheck: fetching vulnerabilities: no route' >&2; exit 1 ;; esac"
	)
	for name, c := range map[string]struct {
		govulncheck, required string
		fails, noted          bool
	}{
		"nothing found":                         {none, "1", false, false},
		"one found":                             {found, "", true, false},
		"one found, in a database of that name": {"echo 'fetching vulnerabilities'; " + found, "", true, false},
		"no database, nothing found":            {strings.Replace(offline, "%s", none, 1), "", false, true},
		"no database, though it is required":    {strings.Replace(offline, "%s", none, 1), "1", true, false},
		"no database, one found":                {strings.Replace(offline, "%s", found, 1), "", true, true},
	} {
		notes := filepath.Join(t.TempDir(), "notes")
		run := exec.Command("bash", ".ci/vuln", script(t, "govulncheck", c.govulncheck))
		run.Dir = root
		run.Env = append(os.Environ(), "CHECK_NOTES="+notes, "VULN_REQUIRED="+c.required)
		out, err := run.CombinedOutput()
		text, _ := os.ReadFile(notes)
		if (err != nil) != c.fails || (len(text) > 0) != c.noted {
			t.Errorf("%s: %v, noted %q\n%s", name, err, text, out)
		}
	}
}

// What was not checked is the last thing that the gate prints, whatever passed before.
func TestTheGateEndsWithWhatItDidNotCheck(t *testing.T) {
	const note = "something: NOT RUN"
	for _, noted := range []bool{true, false} {
		text := "exit 0"
		if noted {
			text = `case "$*" in *" test") echo "` + note + `" >>"$CHECK_NOTES" ;; esac`
		}
		run := exec.Command("bash", filepath.Join(root, ".ci/check"))
		run.Env = append(os.Environ(), "PATH="+filepath.Dir(script(t, "make", text))+":"+os.Getenv("PATH"))
		out, err := run.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if got := strings.HasSuffix(string(out), "\nNOT CHECKED:\n"+note+"\n"); got != noted {
			t.Errorf("noted %v, it ends with it %v:\n%s", noted, got, out)
		}
	}
}
