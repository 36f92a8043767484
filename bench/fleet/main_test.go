package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/plot"
)

// program is retryproxy, built for the test.
func program(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds retryproxy")
	}
	path := filepath.Join(t.TempDir(), "retryproxy")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/retryproxy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// small are the flags of a fleet of three and a rate limit of fifty.
func small(program string, more ...string) []string {
	return append([]string{"--proxy", program, "--proxies", "3", "--ratelimit", "50", "--burst", "10", "--clients", "120", "--for", "4s", "--settle", "1s"}, more...)
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
	if code := rig.Program(run).Run(t.Context(), "fleet", small(program(t), "--parts", "alone", "--short", "--json", file, "--png", filepath.Join(dir, "fleet.png")), &out, &progress); code != rig.OK {
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
	file := filepath.Join(t.TempDir(), "fleet.json")
	var out, progress bytes.Buffer
	if code := rig.Program(run).Run(t.Context(), "fleet", small(program(t), "--parts", "cost", "--short", "--json", file), &out, &progress); code != rig.OK {
		t.Fatalf("exit code %d:\n%s%s", code, &out, &progress)
	}
	b, d := read(t, file)
	if len(d.Cost) != 4 || len(d.Goals) != 2 {
		t.Fatalf("%s", b)
	}
	for _, c := range d.Cost {
		if len(c.Each) != 1 || c.Median <= 0 || c.Ratio <= 0 {
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
		{"--proxies", "0"}, {"--parts", "alone,nothing"}, {"--window", "day"}, {"--for", "2s"}, {"--pause", "1500ms"}, {"--clients", "20000"}, {"more"}, {"--unknown"},
	} {
		var errs bytes.Buffer
		if code := rig.Program(run).Run(t.Context(), "fleet", args, &errs, &errs); code != rig.Usage {
			t.Errorf("%v: exit code %d, want %d:\n%s", args, code, rig.Usage, &errs)
		}
	}
	var errs bytes.Buffer
	if code := rig.Program(run).Run(t.Context(), "fleet", []string{"--parts", "alone", "--proxies", "1", "--proxy", "/nowhere"}, &errs, &errs); code != rig.Failed || !strings.Contains(errs.String(), "/nowhere") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}
