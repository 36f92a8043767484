package interop

import (
	"encoding/xml"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// failures runs h2spec in full against addr and gives what failed, by name.
func failures(t *testing.T, addr string) (failed []string, tests int) {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.xml")
	out, err := run(t, 3*patience, "", nil, filepath.Join(directory, "h2spec"), "--strict", "-h", "127.0.0.1", "-p", port(t, addr), "-o", "5", "-j", report)
	b, readErr := os.ReadFile(report)
	if readErr != nil {
		t.Fatalf("%v: %v\n%s", err, readErr, out)
	}
	var suites struct {
		Suites []struct {
			Package string `xml:"package,attr"`
			Cases   []struct {
				Name    string    `xml:"classname,attr"`
				Failure *struct{} `xml:"failure"`
				Error   *struct{} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b, &suites); err != nil {
		t.Fatal(err)
	}
	for _, s := range suites.Suites {
		for _, c := range s.Cases {
			tests++
			if c.Failure != nil || c.Error != nil {
				failed = append(failed, s.Package+" "+c.Name)
			}
		}
	}
	return failed, tests
}

// What the proxy fails of h2spec, the standard library's server fails alone.
func TestH2Spec(t *testing.T) {
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("a response of some length, so that windows matter\n"))
	})
	library, tests := failures(t, newBed(t).Serve(answer))
	ours, ran := failures(t, startProxy(t, "http://"+newBed(t).Serve(answer)).Addr)
	t.Logf("%d tests; net/http alone fails %q; retryproxy fails %q", tests, library, ours)
	if tests < 140 || ran != tests {
		t.Errorf("%d and %d tests ran", tests, ran)
	}
	for _, name := range ours {
		if !slices.Contains(library, name) {
			t.Errorf("%s: net/http alone does not fail it", name)
		}
	}
}
