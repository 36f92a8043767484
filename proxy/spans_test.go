package proxy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// without are fields whose buffers no parsed head points into.
var without = []string{"x.r.Out.Headers", "o.Headers", "w.buf", "k.body", "b.held", "b.scratch"}

// detaching are the methods that return a buffer with parsed headers, after they detach its spans.
var detaching = []string{
	"conn.giveUpBuffer", "conn.growBuffer", "conn.enlargeBuffer",
	"Conn.PutIn", "Conn.replace", "Conn.GrowIn",
	"Exchange.putHead", "Kept.Release",
}

// Only the methods above return a buffer that parsed headers point into. Other functions may only
// return buffers known to hold no headers: the fields above, and what a function itself got.
func TestOnlyAFewMethodsReturnBuffersWithSpans(t *testing.T) {
	files := token.NewFileSet()
	var names []string
	for _, dir := range []string{".", "attempt", "downstream", "exchange", "request", "response"} {
		some, err := filepath.Glob(dir + "/*.go")
		if err != nil || len(some) == 0 {
			t.Fatal(dir, err)
		}
		names = append(names, some...)
	}
	calls := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil || slices.Contains(detaching, method(f)) {
				continue
			}
			own := fetched(f)
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !givesBack(call) {
					return true
				}
				calls++
				if b := text(call.Args[0]); !slices.Contains(without, b) && !slices.Contains(own, b) {
					t.Errorf("%v: %s goes back to a pool here, and spans may point into it: return it by a method that detaches them", files.Position(call.Pos()), b)
				}
				return true
			})
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls were found: the test looks for other names than the code has", calls)
	}
}

// method returns the type and the name of a method, "" for a function.
func method(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	of := f.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	return text(of) + "." + f.Name.Name
}

// givesBack reports whether call puts its first argument back into a pool, or may.
func givesBack(call *ast.CallExpr) bool {
	f := text(call.Fun)
	return slices.Contains([]string{"buffer.Put", "buffer.Grow"}, f) || strings.HasSuffix(f, "uffers.Put")
}

// fetched are the variables that f sets to what buffer.Get returns, and the chunks of a body, which hold no head.
func fetched(f *ast.FuncDecl) (names []string) {
	if f.Name.Name == "release" {
		names = append(names, "chunk")
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if set, ok := n.(*ast.AssignStmt); ok && len(set.Rhs) == 1 {
			if call, ok := set.Rhs[0].(*ast.CallExpr); ok && text(call.Fun) == "buffer.Get" {
				names = append(names, text(set.Lhs[0]))
			}
		}
		return true
	})
	return names
}

// text is an expression of names and dots; what else it is made of is left out.
func text(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return text(e.X) + "." + e.Sel.Name
	case *ast.SliceExpr:
		return text(e.X)
	}
	return ""
}
