package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot"
	"github.com/retryproxy/retryproxy/internal/needs"
)

// program is retryproxy, built for the test.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds retryproxy")
	}
	path := filepath.Join(t.TempDir(), "retryproxy")
	build := exec.Command("go", "build", "-o", path, "../../cmd/retryproxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// playSmall plays with a fleet of three and a rate limit of fifty.
func playSmall(t *testing.T, out, progress io.Writer, args ...string) int {
	t.Helper()
	args = append([]string{"--proxy", program(t), "--short"}, args...)
	return rig.Program(func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		o, err := parse(args, stderr)
		if err != nil {
			return err
		}
		o.proxies, o.rateLimit, o.burst, o.clients, o.length, o.settle = 3, 50, 10, 120, 4*time.Second, time.Second
		return o.run(ctx, args, stdout, stderr)
	}).Run(t.Context(), "fleet", args, out, progress)
}

// read gives what --json has written, as it is and understood.
func read(t *testing.T, file string) ([]byte, *document) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	d := new(document)
	if err := json.Unmarshal(b, d); err != nil {
		t.Fatal(err)
	}
	return b, d
}

// Three processes that share nothing meet their upstream's rate limit again and
// again, and all that is told of it agrees.
func TestASmallFleetAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "fleet.json")
	var out, progress bytes.Buffer
	if code := playSmall(t, &out, &progress, "--parts", "alone", "--json", file, "--png", filepath.Join(dir, "fleet.png")); code != rig.OK {
		t.Fatalf("exit code %d:\n%s%s", code, &out, &progress)
	}
	b, d := read(t, file)
	if len(d.Arms) != 1 || d.Figure == nil || d.Figure.Validate() != nil || len(d.Figure.Panels[0].Series) != 1 {
		t.Fatalf("%s", b)
	}
	a := d.Arms[0]
	if a.Counts[sent] < 150 || a.Counts[turnedAway] < 20 || a.Counts[sent]-a.Counts[turnedAway] > 170 || failed(a.Counts) != 0 || len(a.Seconds) < 3 || a.CPU <= 0 {
		t.Errorf("%+v", a)
	}
	if _, err := plot.Decode(bytes.NewReader(b)); err != nil {
		t.Errorf("the figure cannot be drawn again: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "fleet.png")); err != nil {
		t.Error(err)
	}
	if !strings.Contains(progress.String(), "alone      2s of 4") || strings.Contains(progress.String(), "\x1b") {
		t.Errorf("progress: %q", &progress)
	}
}

// What CI plays of the comparison of CPU time is all of it, in little.
func TestTheCostPartRuns(t *testing.T) {
	needs.Program(t, "redis-server", "redis-server")
	file := filepath.Join(t.TempDir(), "fleet.json")
	var out, progress bytes.Buffer
	if code := playSmall(t, &out, &progress, "--parts", "cost", "--json", file); code != rig.OK {
		t.Fatalf("exit code %d:\n%s%s", code, &out, &progress)
	}
	b, d := read(t, file)
	if len(d.Cost) != 4 || len(d.Goals) != 2 {
		t.Fatalf("%s", b)
	}
	for _, c := range d.Cost {
		if len(c.All) != 1 || c.Median <= 0 || c.Ratio <= 0 {
			t.Errorf("%+v", c)
		}
	}
	o, err := parse([]string{"--short"}, &out)
	if err != nil || !slices.Contains(o.parts, "cost") || o.turn > time.Second {
		t.Errorf("--short plays %v, turns of %v, %v", o.parts, o.turn, err)
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--parts", "alone,nothing"}, {"--for", "2s"}, {"more"}, {"--unknown"},
	} {
		var errs bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "fleet", args, &errs, &errs); code != rig.Usage {
			t.Errorf("%v: exit code %d, want %d:\n%s", args, code, rig.Usage, &errs)
		}
	}
	var errs bytes.Buffer
	if code := rig.Program(run).Run(t.Context(), "fleet", []string{"--parts", "alone", "--proxy", "/nowhere"}, &errs, &errs); code != rig.Failed || !strings.Contains(errs.String(), "/nowhere") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}
