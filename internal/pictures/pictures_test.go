package pictures

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/plot"
)

func figure() *plot.Figure {
	return &plot.Figure{Title: "T", Panels: []plot.Panel{{Series: []plot.Series{{Name: "a", X: []float64{1, 2}, Y: []float64{3, 4}}}}}}
}

// install puts a shell script in place of the command that draws.
func install(t *testing.T, script string) (dir string) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Command), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}

func TestDrawHandsOverFigureAndFiles(t *testing.T) {
	dir := install(t, `cat >"$(dirname "$0")/figure"; for a; do echo "$a"; done >"$(dirname "$0")/args"`)
	w := Wanted{PNG: "a b.png", SVG: "c.svg", Size: "300x400"}
	if err := w.Draw(context.Background(), figure()); err != nil {
		t.Fatal(err)
	}
	args, err := os.ReadFile(filepath.Join(dir, "args"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(args), "--png\na b.png\n--svg\nc.svg\n--size\n300x400\n"; got != want {
		t.Errorf("arguments %q, expected %q", got, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "figure"))
	if err != nil {
		t.Fatal(err)
	}
	if f, err := plot.Decode(bytes.NewReader(text)); err != nil || !reflect.DeepEqual(f, figure()) {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestDrawTellsWhatTheCommandSaid(t *testing.T) {
	install(t, `cat >/dev/null; echo "retryproxy-plot: disk full" >&2; exit 1`)
	w := Wanted{PNG: "a.png"}
	if err := w.Draw(context.Background(), figure()); err == nil || err.Error() != "retryproxy-plot: disk full" {
		t.Error(err)
	}
}

func TestDrawTellsOfASilentFailure(t *testing.T) {
	install(t, `cat >/dev/null; exit 3`)
	w := Wanted{PNG: "a.png"}
	if err := w.Draw(context.Background(), figure()); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
}

func TestDrawEndsWithItsContext(t *testing.T) {
	install(t, `exec sleep 600`)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := Wanted{PNG: "a.png"}
	if err := w.Draw(ctx, figure()); err == nil {
		t.Error("ended well")
	}
}

func TestDrawWithoutTheCommandSaysWhatToRun(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	w := Wanted{PNG: "a.png"}
	if err := w.Draw(context.Background(), figure()); !errors.Is(err, ErrNoCommand) || !strings.Contains(err.Error(), "pipe that into retryproxy-plot") {
		t.Error(err)
	}
}

func TestDrawRefusesAFigureThatIsNone(t *testing.T) {
	install(t, `touch "$(dirname "$0")/ran"`)
	w := Wanted{PNG: "a.png"}
	if err := w.Draw(context.Background(), &plot.Figure{}); err == nil || !strings.Contains(err.Error(), "0 panels") {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	var w Wanted
	w.Flags(f)
	if w.Any() {
		t.Error("wants something unasked")
	}
	if err := f.Parse([]string{"--svg", "x.svg", "--size", "1x2"}); err != nil {
		t.Fatal(err)
	}
	if !w.Any() || (w != Wanted{SVG: "x.svg", Size: "1x2"}) {
		t.Errorf("%+v", w)
	}
}
