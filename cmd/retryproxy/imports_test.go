package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What a person runs at a desk, the libraries for its flags and pictures, and OpenTelemetry would make
// every sidecar larger, and so would what only tests need. The sizes are in docs/decisions/0018-small-sidecar.md and 0015-inject.md.
func TestTheSidecarContainsNothingOfADesk(t *testing.T) {
	desk := []string{"github.com/retryproxy/retryproxy/ctl", "github.com/spf13/", "gonum.org/", "codeberg.org/", "golang.org/x/image", "k8s.io/", "testing"}
	for _, tags := range []string{"", "otel", "small"} {
		unwanted := desk
		if tags != "otel" {
			unwanted = append(slices.Clone(desk), "go.opentelemetry.io/")
		}
		out, err := exec.Command("go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		packages := strings.Fields(string(out))
		if len(packages) < 100 {
			t.Fatalf("tags %q: only %d packages", tags, len(packages))
		}
		for _, path := range packages {
			for _, prefix := range unwanted {
				if strings.HasPrefix(path, prefix) {
					t.Errorf("tags %q: it contains %s", tags, path)
				}
			}
		}
	}
}
