package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

// The sidecar contains no code to draw pictures, edit manifests or make spans. The sizes are in
// docs/decisions/0018-small-sidecar.md and 0015-inject.md.
func TestNoDrawingNoKubernetesAndNoOpenTelemetryInTheProxy(t *testing.T) {
	info, ok := debug.ReadBuildInfo()
	if !ok || len(info.Deps) == 0 {
		t.Fatal("the binary does not tell what it was built from")
	}
	for _, d := range info.Deps {
		if strings.Contains(d.Path, "gonum") || strings.Contains(d.Path, "font") || strings.Contains(d.Path, "image") || strings.Contains(d.Path, "k8s.io") || strings.Contains(d.Path, "opentelemetry") {
			t.Errorf("%s is part of it", d.Path)
		}
	}
}
