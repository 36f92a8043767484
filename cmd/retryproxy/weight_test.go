package main

import (
	"runtime/debug"
	"strings"
	"testing"
)

// The sidecar does not carry what draws pictures, edits manifests or makes spans: see
// docs/decisions/0004-plots.md, 0015-inject.md and 0018-traces.md for what it would weigh.
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
