package metrics

import (
	"go/build"
	"strings"
	"testing"
)

// The data path does not depend on Prometheus, nor Prometheus on it: of our own packages, metrics
// imports only policy.
func TestImportsOfOurOwn(t *testing.T) {
	p, err := build.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/retryproxy/retryproxy/"
	for _, path := range p.Imports {
		if strings.HasPrefix(path, module) && !strings.HasPrefix(path+"/", module+"policy/") {
			t.Errorf("metrics imports %s", path)
		}
	}
}
