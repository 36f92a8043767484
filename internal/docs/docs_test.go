package docs

import (
	"os"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/metrics"
)

// root of the repository, seen from this package.
const root = "../.."

func TestGeneratedDocumentsAreCurrent(t *testing.T) {
	files, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range files {
		if have, err := os.ReadFile(path); err != nil || string(have) != want {
			t.Errorf("%s is stale; run make docs (%v)", path, err)
		}
	}
}

func TestAPartOfAPageIsRenewed(t *testing.T) {
	g := generated{path: "a.md", part: "table", content: "new\n"}
	got, err := g.renew("before\n<!-- begin table -->\nold\n<!-- end table -->\nafter\n")
	if want := "before\n<!-- begin table -->\nnew\n<!-- end table -->\nafter\n"; got != want || err != nil {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if _, err := g.renew("no marks"); err == nil {
		t.Error("a page without the block passes")
	}
}

func TestReferencesNameEverything(t *testing.T) {
	text := Settings()
	for _, s := range config.Reference() {
		if !strings.Contains(text, "`"+s.Variable()+"`") {
			t.Errorf("%s is missing", s.Variable())
		}
	}
	text = Metrics()
	for _, m := range metrics.Reference() {
		if !strings.Contains(text, "`"+m.Name+"`") {
			t.Errorf("%s is missing", m.Name)
		}
	}
}
