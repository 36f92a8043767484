package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

// options say what is counted. All package names are relative to the module.
type options struct {
	dir   string          // of the module
	under []string        // packages that count, with those below them
	owned []string        // packages whose fields are to be written by at most two files
	plain map[string]bool // types that may be filled in by others, as "policy.Result"
}

// place is a foreign write.
type place struct {
	at, how       string // "file.go:12:3"; "assigns", "takes the address of" or "sets"
	writer, owner string // the package that writes; the type that is written
	field         string
}

// findings are what was counted.
type findings struct {
	writes   []place
	chains   map[string]int // long selector chains, by package
	chainAt  []string       // "proxy/file.go:12:3: a.b.c.d.e"
	exported map[string]int // exported fields, by type, where there are more than eight
	shared   map[string]int // writing files, by field with an owner, where there are more than two
}

// counter counts in one module.
type counter struct {
	*options
	findings
	module  string // with a slash at its end
	setters map[types.Object]field
	writers map[field]map[string]bool // files
	pkg     *packages.Package
	short   string // the name of pkg
}

// field is a field of a named type.
type field struct{ owner, name string }

// measure loads the module and counts.
func measure(o *options) (*findings, error) {
	pkgs, err := packages.Load(&packages.Config{Dir: o.dir, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax |
		packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps | packages.NeedModule}, "./...")
	if err != nil {
		return nil, err
	}
	c := &counter{options: o, setters: map[types.Object]field{}, writers: map[field]map[string]bool{},
		findings: findings{chains: map[string]int{}, exported: map[string]int{}, shared: map[string]int{}}}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("cannot load %s: %w", o.dir, e)
		}
		if p.Module != nil {
			c.module = p.Module.Path + "/"
		}
	}
	if c.module == "" {
		return nil, fmt.Errorf("there is no module in %s", o.dir)
	}
	if err := c.checkPlain(pkgs); err != nil {
		return nil, err
	}
	for _, p := range pkgs {
		c.in(p)
		c.findSetters()
	}
	for _, p := range pkgs {
		c.in(p)
		if within(c.short, c.under) && !isForTests(p) {
			c.count()
		}
	}
	for f, files := range c.writers {
		if len(files) > 2 {
			c.shared[f.owner+"."+f.name] = len(files)
		}
	}
	return &c.findings, nil
}

// isForTests reports whether only tests can use p.
func isForTests(p *packages.Package) bool { return p.Imports["testing"] != nil }

func (c *counter) in(p *packages.Package) {
	c.pkg, c.short = p, strings.TrimPrefix(p.PkgPath, c.module)
}

// checkPlain reports types of the list that are missing or not plain: a plain value has no method that
// changes it, so its fields are all there is.
func (c *counter) checkPlain(pkgs []*packages.Package) error {
	known := map[string]*types.Named{}
	for _, p := range pkgs {
		for _, name := range p.Types.Scope().Names() {
			if named, is := p.Types.Scope().Lookup(name).Type().(*types.Named); is {
				known[strings.TrimPrefix(p.PkgPath, c.module)+"."+name] = named
			}
		}
	}
	var problems []error
	for name := range c.plain {
		named := known[name]
		if named == nil {
			problems = append(problems, fmt.Errorf("the plain type %s does not exist", name))
			continue
		}
		for m := range named.Methods() {
			if _, changes := m.Signature().Recv().Type().(*types.Pointer); changes && writesReceiver(pkgs, m) {
				problems = append(problems, fmt.Errorf("%s is not a plain value: its method %s changes it", name, m.Name()))
			}
		}
	}
	return errors.Join(problems...)
}

// writesReceiver reports whether a method assigns to a field of its receiver.
func writesReceiver(pkgs []*packages.Package, m *types.Func) (writes bool) {
	for _, p := range pkgs {
		if p.Types != m.Pkg() {
			continue
		}
		for _, file := range p.Syntax {
			for _, d := range file.Decls {
				f, is := d.(*ast.FuncDecl)
				if !is || p.TypesInfo.Defs[f.Name] != m || f.Body == nil {
					continue
				}
				ast.Inspect(f.Body, func(n ast.Node) bool {
					for _, target := range targets(n) {
						sel, is := inner(target).(*ast.SelectorExpr)
						writes = writes || is && isReceiver(p, f, sel.X)
					}
					return !writes
				})
			}
		}
	}
	return writes
}

// findSetters collects the methods of the package that only assign their parameter to one field of
// their receiver.
func (c *counter) findSetters() {
	for _, file := range c.pkg.Syntax {
		for _, d := range file.Decls {
			f, is := d.(*ast.FuncDecl)
			if !is || f.Recv == nil || f.Body == nil || len(f.Body.List) != 1 {
				continue
			}
			assign, is := f.Body.List[0].(*ast.AssignStmt)
			if !is || len(assign.Lhs) != 1 || assign.Tok != token.ASSIGN {
				continue
			}
			sel, is := assign.Lhs[0].(*ast.SelectorExpr)
			if !is || !isReceiver(c.pkg, f, sel.X) || !isParameter(c.pkg, f, assign.Rhs[0]) {
				continue
			}
			if written, _, is := c.fieldOf(sel); is {
				c.setters[c.pkg.TypesInfo.Defs[f.Name]] = written
			}
		}
	}
}

func isReceiver(p *packages.Package, f *ast.FuncDecl, e ast.Expr) bool {
	id, is := inner(e).(*ast.Ident)
	return is && f.Recv != nil && len(f.Recv.List[0].Names) == 1 && p.TypesInfo.Uses[id] == p.TypesInfo.Defs[f.Recv.List[0].Names[0]]
}

func isParameter(p *packages.Package, f *ast.FuncDecl, e ast.Expr) bool {
	id, is := e.(*ast.Ident)
	if !is {
		return false
	}
	for _, list := range f.Type.Params.List {
		for _, name := range list.Names {
			if p.TypesInfo.Uses[id] == p.TypesInfo.Defs[name] {
				return true
			}
		}
	}
	return false
}

// count counts in the package.
func (c *counter) count() {
	for _, file := range c.pkg.Syntax {
		ast.Inspect(file, func(n ast.Node) bool {
			for _, target := range targets(n) {
				c.write("assigns", target)
			}
			switch n := n.(type) {
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					c.write("takes the address of", n.X)
				}
			case *ast.CallExpr:
				c.call(n)
			case *ast.TypeSpec:
				c.typeSpec(n)
			case *ast.SelectorExpr:
				if depth(n) >= 4 {
					c.chains[c.short]++
					at := c.pkg.Fset.Position(n.Pos())
					at.Filename = c.short + "/" + filepath.Base(at.Filename)
					c.chainAt = append(c.chainAt, at.String()+": "+types.ExprString(n))
					return false
				}
			}
			return true
		})
	}
}

// targets are what a statement writes.
func targets(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return n.Lhs
		}
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	}
	return nil
}

// write counts a write to target, if that is a field.
func (c *counter) write(how string, target ast.Expr) {
	sel, is := inner(target).(*ast.SelectorExpr)
	if !is {
		return
	}
	if f, pkg, is := c.fieldOf(sel); is {
		c.note(how, f, pkg, sel.Pos())
	}
}

func (c *counter) note(how string, f field, declared *types.Package, pos token.Pos) {
	at := c.pkg.Fset.Position(pos)
	at.Filename = filepath.Base(at.Filename)
	if within(strings.TrimPrefix(declared.Path(), c.module), c.owned) && !c.plain[f.owner] {
		if c.writers[f] == nil {
			c.writers[f] = map[string]bool{}
		}
		c.writers[f][c.short+"/"+at.Filename] = true
	}
	if declared != c.pkg.Types && !c.plain[f.owner] {
		at.Filename = c.short + "/" + at.Filename
		c.writes = append(c.writes, place{at: at.String(), how: how, writer: c.short, owner: f.owner, field: f.name})
	}
}

// fieldOf returns the field that a selector names and the package that declares it, if that is in the module.
func (c *counter) fieldOf(sel *ast.SelectorExpr) (field, *types.Package, bool) {
	s := c.pkg.TypesInfo.Selections[sel]
	if s == nil || s.Kind() != types.FieldVal {
		return field{}, nil, false
	}
	declared := s.Obj().Pkg()
	if declared == nil || !strings.HasPrefix(declared.Path()+"/", c.module) {
		return field{}, nil, false
	}
	return field{owner: c.owner(s), name: s.Obj().Name()}, declared, true
}

// owner is the name of the struct that has the field, by way of embedded ones.
func (c *counter) owner(s *types.Selection) string {
	t := s.Recv()
	for i, index := range s.Index() {
		if p, is := t.(*types.Pointer); is {
			t = p.Elem()
		}
		if i == len(s.Index())-1 {
			break
		}
		t = t.Underlying().(*types.Struct).Field(index).Type()
	}
	if named, is := types.Unalias(t).(*types.Named); is {
		return strings.TrimPrefix(named.Obj().Pkg().Path(), c.module) + "." + named.Obj().Name()
	}
	return strings.TrimPrefix(s.Obj().Pkg().Path(), c.module)
}

// call counts the call of a method that only assigns one field.
func (c *counter) call(n *ast.CallExpr) {
	sel, is := n.Fun.(*ast.SelectorExpr)
	if !is {
		return
	}
	m := c.pkg.TypesInfo.Uses[sel.Sel]
	if f, is := c.setters[m]; is {
		c.note("sets", f, m.Pkg(), sel.Pos())
	}
}

func (c *counter) typeSpec(n *ast.TypeSpec) {
	s, is := n.Type.(*ast.StructType)
	if !is {
		return
	}
	exported := 0
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			if name.IsExported() {
				exported++
			}
		}
	}
	if name := c.short + "." + n.Name.Name; exported > 8 {
		c.exported[name] = exported
	}
}

// inner is what is written if e is: of a[i] it is a, of *p it is p.
func inner(e ast.Expr) ast.Expr {
	for {
		switch t := e.(type) {
		case *ast.ParenExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.StarExpr:
			e = t.X
		default:
			return e
		}
	}
}

func depth(e ast.Expr) int {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return 1 + depth(e.X)
	case *ast.CallExpr:
		return depth(e.Fun)
	}
	return 0
}

func within(name string, list []string) bool {
	for _, p := range list {
		if name == p || strings.HasPrefix(name, p+"/") {
			return true
		}
	}
	return false
}
