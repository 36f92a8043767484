package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

func TestSimulateTellsAndDraws(t *testing.T) {
	png := filepath.Join(t.TempDir(), "fleet.png")
	for _, more := range []string{"--grow=false", "--grow"} {
		var out, errs bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "fleet", []string{"simulate", "--processes", "1,20", "--for", "6s", "--png", png, more}, &out, &errs); code != rig.OK {
			t.Fatalf("exit code %d: %s", code, &errs)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		head, last := lines[len(lines)-4], lines[len(lines)-1]
		if !strings.HasPrefix(head, "| processes | alone |") || !regexp.MustCompile(`^\| 20 \| [45]\d\.\d\d %`).MatchString(last) || strings.Count(head, "|") != strings.Count(last, "|") {
			t.Errorf("%s", &out)
		}
		if _, err := os.Stat(png); err != nil {
			t.Error(err)
		}
	}
	for _, args := range [][]string{{"--processes", "0"}, {"--processes", "1,x"}, {"--for", "x"}} {
		var out, errs bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "fleet", append([]string{"simulate"}, args...), &out, &errs); code != rig.Usage {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}
