package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/metrics"
)

// root of the repository, seen from this package.
const root = "../.."

func TestGeneratedDocumentsAreCurrent(t *testing.T) {
	stale, err := Stale(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stale {
		t.Errorf("%s is stale; run make docs", path)
	}
}

func TestStaleFindsAndWriteRenews(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "docs/reference/retries.md")
	if err := os.MkdirAll(filepath.Dir(page), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, []byte("before\n<!-- begin will my request be retried -->\nold\n<!-- end will my request be retried -->\nafter\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if stale, err := Stale(dir); err != nil || len(stale) != 5 {
		t.Fatalf("%v %v", stale, err)
	}
	if err := Write(dir); err != nil {
		t.Fatal(err)
	}
	if stale, err := Stale(dir); err != nil || len(stale) != 0 {
		t.Errorf("still stale: %v %v", stale, err)
	}
	content, err := os.ReadFile(page)
	if err != nil || !strings.HasPrefix(string(content), "before\n") || !strings.HasSuffix(string(content), "\nafter\n") || strings.Contains(string(content), "old") {
		t.Errorf("%s %v", content, err)
	}
	if err := os.WriteFile(page, []byte("no marks"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Stale(dir); err == nil {
		t.Error("a page without the block passes")
	}
}

func TestReferencesNameEverything(t *testing.T) {
	text := Settings()
	for _, s := range config.Reference() {
		if !strings.Contains(text, "`"+s.Variable()+"`") {
			t.Errorf("%s is missing", s.Variable())
		}
	}
	text = Metrics()
	for _, m := range metrics.Reference() {
		if !strings.Contains(text, "`"+m.Name+"`") {
			t.Errorf("%s is missing", m.Name)
		}
	}
}
