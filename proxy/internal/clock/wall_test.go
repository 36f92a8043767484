package clock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// wallTimes are the calls, by file, that have to do with the wall clock and are right so.
var wallTimes = map[string]string{
	"proxy/internal/clock/clock.go UnixNano": "converts an instant, for logs and traces",
	"proxy/report/report.go UnixNano":        "when a request began, for traces",
	"proxy/admission/lateresponse.go Unix":   "a deadline that is over by any clock",
	"proxy/downstream/conn.go Unix":          "a deadline that is over by any clock",
	"proxy/upstream/pool.go Unix":            "when a certificate expires",
	"proxy/upstream/tls.go Unix":             "when a certificate expires",
	"proxy/upstream/target.go Local":         "no time, but whether a target is on this machine",
	"policy/retryafter/values.go Unix":       "a time in a header, measured against the Date of the response",
	"policy/retryafter/values.go UnixMilli":  "a time in a header, measured against the Date of the response",
}

// TestNothingIsMeasuredByTheWallClock finds what drops the monotonic part of a time.Time. The difference of two such
// times is wrong if the wall clock is stepped between them.
func TestNothingIsMeasuredByTheWallClock(t *testing.T) {
	drops := map[string]bool{"Unix": true, "UnixNano": true, "UnixMicro": true, "UnixMilli": true, "UTC": true, "Local": true, "AddDate": true}
	const root = "../../.."
	for _, tree := range []string{"proxy", "policy", "fleet"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, is := n.(*ast.CallExpr)
				if !is {
					return true
				}
				method, is := call.Fun.(*ast.SelectorExpr)
				name, _ := filepath.Rel(root, path)
				if is && drops[method.Sel.Name] && wallTimes[name+" "+method.Sel.Name] == "" {
					t.Errorf("%s: %s is of the wall clock; if nothing is measured by it, add it to wallTimes", fset.Position(n.Pos()), method.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
