package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What a person runs at a desk, and the library for its flags, would make every sidecar larger.
func TestTheSidecarContainsNothingOfADesk(t *testing.T) {
	const ours = "github.com/retryproxy/retryproxy/"
	for _, tags := range []string{"", "otel", "small"} {
		out, err := exec.Command("go", "list", "-deps", "-tags", tags, ".").Output()
		if err != nil {
			t.Fatal(err)
		}
		packages := strings.Fields(string(out))
		if len(packages) < 100 {
			t.Fatalf("tags %q: only %d packages", tags, len(packages))
		}
		for _, path := range packages {
			for _, desk := range []string{ours + "ctl/", "github.com/spf13/", "gonum.org/"} {
				if strings.HasPrefix(path, desk) {
					t.Errorf("tags %q: it contains %s", tags, path)
				}
			}
		}
	}
}
