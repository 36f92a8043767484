package docs

import (
	"go/build"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Every package says in its comment what question it answers.
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
