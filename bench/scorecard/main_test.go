package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/bench/internal/rig"
)

// TestMain lets the test binary be the servers, as the command is.
func TestMain(m *testing.M) {
	rig.RunRole()
	os.Exit(m.Run())
}

// judged runs the command and returns its exit code and what it printed.
func judged(ctx context.Context, args ...string) (code int, out string) {
	var b bytes.Buffer
	code = rig.Program(run).Run(ctx, "scorecard", args, &b, &b)
	return code, b.String()
}

// TestShortRows plays rows of each kind directly, and looks whether what is reported fits together. How fast
// things happen is not looked at.
func TestShortRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scorecard.json")
	code, out := judged(context.Background(), "--short", "--arms", "direct", "--json", file, "--only", "storm: kill,deploy 1,POST 5/s,then fin 1.5,virtual")
	if code != rig.OK {
		t.Fatalf("exit code %d:\n%s", code, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Rows) != 5 || d.missed() > 0 || d.goals() > 0 {
		t.Errorf("%d rows, %d goals; want 5 and none:\n%s", len(d.Rows), d.goals(), out)
	}
	for _, r := range d.Rows {
		m := r.Arms[direct]
		if m == nil || m.Requests == 0 || m.Attempts == 0 {
			t.Errorf("%s: nothing was sent: %+v", r.Name, m)
		}
		if !strings.Contains(out, r.Name+": not judged\n") {
			t.Errorf("%s was not printed", r.Name)
		}
	}
}

func TestArgumentsAreChecked(t *testing.T) {
	for _, args := range [][]string{{"--only", "no such row"}, {"--arms", "nginx"}, {"more"}} {
		if code, out := judged(context.Background(), args...); code != rig.Usage {
			t.Errorf("%v: exit code %d, want %d:\n%s", args, code, rig.Usage, out)
		}
	}
}

// TestInterruptEndsEverything: no server may be left behind.
func TestInterruptEndsEverything(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if code, out := judged(ctx, "--short", "--arms", "direct", "--only", "storm: kill"); code != rig.Failed {
		t.Errorf("exit code %d, want %d:\n%s", code, rig.Failed, out)
	}
}

// TestEarlierRunsAreJudgedAgain reads two files of a whole table, and writes it to a page.
func TestEarlierRunsAreJudgedAgain(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "page.md")
	write(t, page, "before\n"+tableBegin+"OLD\n"+tableEnd+"\nafter\n")
	files := make([]string, 2)
	for i := range files {
		d := &document{Seconds: 10}
		for n, r := range rows() {
			if n%2 == i {
				got := &result{Name: r.name, Arms: map[string]*measures{}}
				for _, arm := range arms {
					got.Arms[arm] = perfect()
				}
				d.Rows = append(d.Rows, got)
			}
		}
		files[i] = filepath.Join(dir, string(rune('a'+i)))
		if err := rig.WriteJSON(files[i], d); err != nil {
			t.Fatal(err)
		}
	}
	if code, out := judged(context.Background(), "--read", strings.Join(files, ","), "--docs", page); code != rig.OK || !strings.Contains(out, "0 of ") {
		t.Errorf("perfect figures: exit code %d:\n%s", code, out)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if !strings.HasPrefix(text, "before\n") || !strings.HasSuffix(text, "\nafter\n") || strings.Contains(text, "OLD") || strings.Count(text, "\n| **") != len(rows()) {
		t.Errorf("the page:\n%s", text)
	}

	d := &document{Rows: []*result{{Name: rows()[0].name, Arms: map[string]*measures{direct: perfect(), haproxy: perfect(), on: hopeless(), off: perfect()}}}}
	if err := rig.WriteJSON(files[1], d); err != nil {
		t.Fatal(err)
	}
	if code, out := judged(context.Background(), "--read", files[1], "--docs", page); code != rig.Missed || !strings.Contains(out, "missed: ") {
		t.Errorf("hopeless figures: exit code %d, want %d:\n%s", code, rig.Missed, out)
	}
	if again, _ := os.ReadFile(page); string(again) != text {
		t.Error("a part of the table replaced the table")
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
