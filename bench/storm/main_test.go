package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
	"github.com/retryproxy/retryproxy/ctl/plot"
)

// TestMain lets the test binary be the server, as the command is.
func TestMain(m *testing.M) {
	rig.RunRole()
	os.Exit(m.Run())
}

// small are the flags of a storm of a few seconds.
func small(dir string, more ...string) []string {
	return append([]string{"--short", "--json", filepath.Join(dir, "storm.json")}, more...)
}

// TestSmallStorms plays each kind of outage with real processes and looks
// whether what was told fits together. How fast things happen is not looked at.
func TestSmallStorms(t *testing.T) {
	for _, outage := range outages {
		t.Run(outage, func(t *testing.T) {
			dir := t.TempDir()
			var out, progress bytes.Buffer
			if code := rig.Program(run).Run(context.Background(), "storm", small(dir, "--through", "direct", "--outage", outage), &out, &progress); code != rig.OK {
				t.Fatalf("exit code %d:\n%s", code, progress.String())
			}
			d := readDocument(t, filepath.Join(dir, "storm.json"))
			r := d.Runs[0]
			all := rig.Counts{}
			for _, c := range r.Seconds {
				all.Add(c)
			}
			if ticks := rig.Sum(r.Ticks, 0, time.Hour); len(r.Seconds) != 3 || !maps.Equal(all, ticks) {
				t.Errorf("%d seconds, sums %v and %v", len(r.Seconds), all, ticks)
			}
			if r.Seconds[0][rig.Good] == 0 || r.Seconds[1].Kinds(rig.Bad)+r.Seconds[1][rig.Late] == 0 {
				t.Errorf("no good response in peace or no failure in the outage: %+v", r.Seconds)
			}
			if r.Verdict.PeakWhole == 0 {
				t.Error("the server told nothing of its load")
			}
			if n := strings.Count(progress.String(), "\n"); n < 2 || strings.Contains(progress.String(), "\x1b") {
				t.Errorf("%d lines of progress, want one a second and no control characters:\n%s", n, progress.String())
			}
		})
	}
}

func readDocument(t *testing.T, file string) *document {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if _, err := plot.Decode(bytes.NewReader(b)); err != nil {
		t.Errorf("retryproxyctl plot cannot draw it: %v", err)
	}
	return &d
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--through", "nginx"}, {"--through", "direct,"}, {"--outage", "fire"}, {"--client-backoff", "polite"},
		{"--proxies", "0"}, {"more"}, {"--unknown"},
	} {
		var errs bytes.Buffer
		if code := rig.Program(run).Run(context.Background(), "storm", args, &errs, &errs); code != rig.Usage {
			t.Errorf("%v: exit code %d, want %d", args, code, rig.Usage)
		}
	}
	if code := rig.Program(run).Run(context.Background(), "storm", []string{"--help"}, &bytes.Buffer{}, &bytes.Buffer{}); code != rig.OK {
		t.Errorf("--help: exit code %d", code)
	}
}

// TestInterruptEndsEverything: a server that was stopped must not be left behind.
func TestInterruptEndsEverything(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	var out bytes.Buffer
	if code := rig.Program(run).Run(ctx, "storm", small(t.TempDir(), "--through", "direct"), &out, &out); code != rig.Failed {
		t.Errorf("exit code %d, want %d:\n%s", code, rig.Failed, out.String())
	}
}
