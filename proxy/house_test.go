package proxy

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// The packages that serve a request import those below them, and not each other.
func TestThePartsOfAnExchangeDoNotImportEachOther(t *testing.T) {
	parts := []string{"permit", "upload", "hedging", "response"}
	for _, part := range parts {
		p, err := build.ImportDir(part, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, imported := range p.Imports {
			for _, other := range append(parts, "exchange") {
				if imported == "github.com/retryproxy/retryproxy/proxy/"+other {
					t.Errorf("proxy/%s imports proxy/%s", part, other)
				}
			}
		}
	}
}

// settingsTypes are lists of settings, one field each. They have no methods to hide.
var settingsTypes = map[string]bool{"settings.Config": true, "settings.Route": true}

// A type of the data path has at most 30 fields and 40 methods, and a package at most 30 files.
// Embedded structs count.
func TestTypesAndPackagesStaySmall(t *testing.T) {
	types, files := map[string]*typeSize{}, map[string]int{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		files[filepath.Dir(path)]++
		measure(f, types)
		return nil
	})
	if err != nil || len(types) < 100 {
		t.Fatal(len(types), err)
	}
	for name, s := range types {
		fields, methods := s.all(types)
		if !settingsTypes[name] && (fields > 30 || methods > 40) {
			t.Errorf("%s has %d fields and %d methods", name, fields, methods)
		}
	}
	for dir, n := range files {
		if n > 30 {
			t.Errorf("proxy/%s has %d files", dir, n)
		}
	}
}

type typeSize struct {
	fields, methods int
	embeds          []string
}

// all is the size of a type with that of the types that it embeds.
func (s *typeSize) all(types map[string]*typeSize) (fields, methods int) {
	fields, methods = s.fields, s.methods
	for _, name := range s.embeds {
		if e := types[name]; e != nil && !settingsTypes[name] {
			f, m := e.all(types)
			fields, methods = fields+f-1, methods+m
		}
	}
	return fields, methods
}

// measure adds the types of a file.
func measure(f *ast.File, types map[string]*typeSize) {
	get := func(name string) *typeSize {
		if !strings.Contains(name, ".") {
			name = f.Name.Name + "." + name
		}
		if types[name] == nil {
			types[name] = &typeSize{}
		}
		return types[name]
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				get(nameOfType(n.Recv.List[0].Type)).methods++
			}
		case *ast.TypeSpec:
			if is, ok := n.Type.(*ast.StructType); ok {
				s := get(n.Name.Name)
				for _, field := range is.Fields.List {
					s.fields += max(len(field.Names), 1)
					if name := nameOfType(field.Type); len(field.Names) == 0 && name != "" {
						if !strings.Contains(name, ".") {
							name = f.Name.Name + "." + name
						}
						s.embeds = append(s.embeds, name)
					}
				}
			}
		}
		return true
	})
}

// nameOfType is the name of a type or of what it points to; "" if it has none.
func nameOfType(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return nameOfType(e.X)
	case *ast.IndexExpr:
		return nameOfType(e.X)
	case *ast.Ident, *ast.SelectorExpr:
		return text(e)
	}
	return ""
}
