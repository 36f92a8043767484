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

// wallTimes are the calls that have to do with the wall clock and are right so: how many, by file and method.
var wallTimes = map[string]int{
	"proxy/internal/clock/clock.go UnixNano":    1, // converts an instant, for logs and traces
	"proxy/internal/clock/date.go Unix":         1, // the wall clock, for Date
	"proxy/internal/clock/date.go UTC":          1, // the wall clock, for Date
	"proxy/internal/rawsocket/conn.go Unix":     1, // a deadline that is over by any clock
	"proxy/accepting/accepting.go Unix":         1, // a deadline that is over by any clock
	"proxy/attempt/pump.go Unix":                1, // a deadline that is over by any clock
	"proxy/http2/link.go Unix":                  1, // a deadline that is over by any clock
	"proxy/report/report.go UnixNano":           1, // of an instant, for the journal
	"proxy/admission/probe.go Unix":             1, // a deadline that is over by any clock
	"proxy/downstream/conn.go Unix":             1, // a deadline that is over by any clock
	"proxy/upstream/healthcheck.go Unix":        1, // a deadline in the past ends a check
	"proxy/upstream/pool.go Unix":               1, // when a certificate expires
	"proxy/upstream/tls.go Unix":                1, // when a certificate expires
	"proxy/upstream/target.go Local":            1, // no time, but whether a target is on this machine
	"policy/retryafter/values.go Unix":          1, // a time in a header, measured against the Date of the response
	"policy/retryafter/values.go UnixMilli":     1, // a time in a header, measured against the Date of the response
	"policy/retryafter/values.go UnixMicro":     1, // a time in a header, measured against the Date of the response
	"policy/retryafter/clock.go UTC":            1, // a time of day in a text, measured against the Date of the response
	"policy/retryafter/clock.go Truncate":       1, // a time of day in a text, measured against the Date of the response
	"policy/apierror/keys.go In":                1, // no time, but the unit of a name
	"proxy/admission/ratelimitwait.go Truncate": 1, // a duration
	"internal/admin/page/journal.go UnixNano":   1, // for comparison with what the data path says in nanoseconds
	"internal/admin/page/journal.go UnixMilli":  1, // shown
	"internal/admin/page/state.go UnixMilli":    2, // shown
	"internal/tracing/tracing.go Round":         3, // converts instants to the wall clock, for spans
}

// TestNothingIsMeasuredByTheWallClock finds what drops the monotonic part of a time.Time. The difference of two such
// times is wrong if the wall clock is stepped between them. It looks at the packages that run beside requests.
func TestNothingIsMeasuredByTheWallClock(t *testing.T) {
	const root = "../../.."
	calls := map[string][]token.Position{}
	for _, tree := range []string{"proxy", "policy", "fleet", "internal/admin", "internal/tracing"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			return findWallTimes(path, func(method string, at token.Position) {
				calls[name+" "+method] = append(calls[name+" "+method], at)
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, at := range calls {
		if len(at) > wallTimes[name] {
			t.Errorf("%s: %d calls at %v, expected %d; if nothing is measured by the wall clock, change wallTimes", name, len(at), at, wallTimes[name])
		}
	}
	for name, n := range wallTimes {
		if len(calls[name]) < n {
			t.Errorf("%s: %d calls, fewer than the %d of wallTimes", name, len(calls[name]), n)
		}
	}
}

// findWallTimes calls found for each call in a file that drops the monotonic part of a time.Time.
func findWallTimes(path string, found func(method string, at token.Position)) error {
	drops := map[string]bool{"Unix": true, "UnixNano": true, "UnixMicro": true, "UnixMilli": true, "UTC": true, "Local": true, "In": true, "AddDate": true, "Round": true, "Truncate": true}
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
		if !is || !drops[method.Sel.Name] {
			return true
		}
		if of, is := method.X.(*ast.Ident); !is || of.Name != "math" { // math.Round
			found(method.Sel.Name, fset.Position(n.Pos()))
		}
		return true
	})
	return nil
}
