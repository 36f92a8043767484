package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheAdminTokenIsReadAnew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	for content, want := range map[string]string{
		"0123456789abcdef":                   "0123456789abcdef",
		" \n0123456789abcdef\r\n":            "0123456789abcdef",
		"0123456789abcde\n":                  "",
		strings.Repeat(" ", 20):              "",
		strings.Repeat("x", maxAdminToken):   strings.Repeat("x", maxAdminToken),
		strings.Repeat("x", maxAdminToken+1): "",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := AdminToken(file); got != want || (err == nil) != (want != "") {
			t.Errorf("%.40q: %.40q, %v", content, got, err)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got, err := AdminToken(file); err == nil {
		t.Errorf("of no file: %q", got)
	}
}
