package docs

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every package documents its purpose.
func TestEveryPackageHasAComment(t *testing.T) {
	packages := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return nil
		case d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		}
		p, err := build.ImportDir(path, build.ImportComment)
		if err != nil || len(p.GoFiles) == 0 { // no package, or tests only
			return nil
		}
		packages++
		if p.Doc == "" {
			t.Errorf("%s has no package comment", path)
		}
		return nil
	})
	if err != nil || packages < 40 {
		t.Errorf("%d packages, %v", packages, err)
	}
}

// Code for operators and the command line must not burden readers of the data path: only commands
// and tools import it.
func TestTheDataPathImportsNothingOfTheCommands(t *testing.T) {
	const ours = "github.com/retryproxy/retryproxy/"
	allowed := map[string]bool{ours + "internal/boundedlog": true, ours + "internal/needs": true, ours + "internal/logtest": true} // the last two are for tests
	for _, tree := range []string{"proxy", "policy", "fleet", "metrics"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			p, _ := build.ImportDir(path, 0) // a directory without Go files imports nothing
			for _, imported := range p.Imports {
				if strings.HasPrefix(imported, ours+"internal/") && !allowed[imported] || strings.HasPrefix(imported, ours+"cmd/") || strings.HasPrefix(imported, ours+"ctl/") {
					t.Errorf("%s imports %s", path, imported)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}
