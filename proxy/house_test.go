package proxy

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The packages that serve a request import those below them. What one may not know is named here.
func TestWhatAPartOfAnExchangeDoesNotKnow(t *testing.T) {
	for part, unknown := range map[string][]string{
		"response":  {"exchange"},
		"report":    {"exchange", "response"},
		"request":   {"exchange", "response", "report"},
		"admission": {"exchange", "response", "report", "request", "settings", "downstream"},
		"attempt":   {"exchange", "response", "report", "request", "settings", "downstream", "admission"},
	} {
		p, err := build.ImportDir(part, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range unknown {
			if slices.Contains(p.Imports, "github.com/retryproxy/retryproxy/proxy/"+other) {
				t.Errorf("proxy/%s imports proxy/%s", part, other)
			}
		}
	}
}

// A package of the data path has at most 30 files. Who may write whose fields is held by tools/ownership.
func TestPackagesStaySmall(t *testing.T) {
	files := map[string]int{}
	err := filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files[filepath.Dir(path)]++
		}
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatal(len(files), err)
	}
	for dir, n := range files {
		if n > 30 {
			t.Errorf("proxy/%s has %d files", dir, n)
		}
	}
}
