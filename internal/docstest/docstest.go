// Package docstest holds sentences of the documentation against the constants that they state.
package docstest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Says fails unless a page, named from the root of the repository, has the text, which is formatted as by
// fmt.Sprintf. How lines are broken does not matter.
func Says(t testing.TB, page, text string, args ...any) {
	t.Helper()
	path, err := find(page)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf(text, args...); !strings.Contains(oneLine(string(content)), oneLine(want)) {
		t.Errorf("%s does not say: %s", page, want)
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// find returns the path of a page, whatever directory of the repository a test runs in.
func find(page string) (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.mod")); missing == nil {
			return filepath.Join(dir, page), nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above this package, so no %s", page)
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}
