package policy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// sourceFiles parses the package and those below it, without their tests.
func sourceFiles(t *testing.T) (*token.FileSet, []*ast.File) {
	t.Helper()
	fset := token.NewFileSet()
	var files []*ast.File
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		files = append(files, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("found only %d source files", len(files))
	}
	return fset, files
}

// The decisions can be tested, simulated and read without a network only while nothing here opens
// one.
func TestImportsOnlyPureStandardLibrary(t *testing.T) {
	allowed := map[string]bool{
		"bytes": true, "encoding/json": true, "errors": true, "fmt": true, "maps": true, "math": true, "math/bits": true, "math/rand/v2": true,
		"slices": true, "strconv": true, "strings": true, "sync": true, "sync/atomic": true, "time": true, "unicode/utf8": true,
	}
	fset, files := sourceFiles(t)
	for _, f := range files {
		for _, imp := range f.Imports {
			path, _ := strconv.Unquote(imp.Path.Value)
			below := strings.HasPrefix(path, "github.com/retryproxy/retryproxy/policy/") // package policy itself is not below
			if !allowed[path] && !below {
				t.Errorf("%s: imports %s; policy is pure standard library (add it here only if it opens, reads and starts nothing)",
					fset.Position(imp.Pos()), path)
			}
		}
	}
}

func TestNoClockAndNoGoroutine(t *testing.T) {
	clock := map[string]bool{"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true,
		"AfterFunc": true, "Tick": true, "NewTimer": true, "NewTicker": true}
	fset, files := sourceFiles(t)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s: starts a goroutine", fset.Position(n.Pos()))
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && clock[n.Sel.Name] {
					t.Errorf("%s: reads a clock: time.%s", fset.Position(n.Pos()), n.Sel.Name)
				}
			}
			return true
		})
	}
}
