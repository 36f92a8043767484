package plot

import (
	"go/build"
	"strings"
	"testing"
)

// The proxy's binary contains this package, so every import takes memory there.
func TestImportsOnlyTheStandardLibrary(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range p.Imports {
		if strings.Contains(path, ".") {
			t.Errorf("plot imports %s", path)
		}
	}
}
