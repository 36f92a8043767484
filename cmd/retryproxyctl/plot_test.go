//go:build !small

package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const document = `{"other": [], "figure": {"title": "T", "panels": [{"x": {"unit": "count"}, "y": {"unit": "seconds", "log": true}, "series": [{"name": "waits", "x": [1, 2, 3], "y": [0.1, 0.2, 0.4]}]}]}}`

// plotted runs the command on document.
func plotted(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(context.Background(), &outside{args: append([]string{"plot"}, args...), stdin: strings.NewReader(stdin), stdout: &out, stderr: &err})
	return code, out.String(), err.String()
}

func sizeOfPNG(t *testing.T, text string) image.Point {
	t.Helper()
	m, err := png.Decode(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return m.Bounds().Size()
}

func sizeOfSVG(t *testing.T, text string) [2]string {
	t.Helper()
	var s struct {
		XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Width   string   `xml:"width,attr"`
		Height  string   `xml:"height,attr"`
	}
	if err := xml.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return [2]string{s.Width, s.Height}
}

func TestDrawsBothFormatsOfTheSizeAskedFor(t *testing.T) {
	dir := t.TempDir()
	raster, vector := filepath.Join(dir, "a.png"), filepath.Join(dir, "a.svg")
	code, stdout, stderr := plotted(t, document, "--png", raster, "--svg", vector, "--size", "700x401")
	if code != exitOK || stdout != "" || stderr != "" {
		t.Fatalf("%d %q %q", code, stdout, stderr)
	}
	text := readFile(t, raster)
	if got := sizeOfPNG(t, text); got != image.Pt(700, 401) {
		t.Error(got)
	}
	if got := sizeOfSVG(t, readFile(t, vector)); got != [2]string{"700", "401"} {
		t.Error(got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
	if info, err := os.Stat(raster); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestStandardOutput(t *testing.T) {
	_, stdout, stderr := plotted(t, document, "--png", "-")
	if got := sizeOfPNG(t, stdout); got != image.Pt(900, 540) {
		t.Error(got, stderr)
	}
	_, stdout, stderr = plotted(t, document, "--svg=-")
	if got := sizeOfSVG(t, stdout); got != [2]string{"900", "540"} {
		t.Error(got, stderr)
	}
}

func TestWrongArguments(t *testing.T) {
	for want, args := range map[string][]string{
		"nothing to draw": {},
		"--png and --svg cannot both be -, standard output": {"--png", "-", "--svg", "-"},
		"expected WIDTHxHEIGHT":                             {"--png", "-", "--size", "900"},
		"expected WIDTHxHEIGHT, such":                       {"--png", "-", "--size", "900x500x2"},
		"size 10x540: expected 200 to 4000":                 {"--png", "-", "--size", "10x540"},
		"unknown flag: --jp":                                {"--jp", "x"},
		`unexpected argument "a"`:                           {"--png", "-", "a"},
	} {
		if code, stdout, stderr := plotted(t, document, args...); code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d %q %q, expected %q", args, code, stdout, stderr, want)
		}
	}
}

func TestFailures(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "none", "a.png")
	for want, c := range map[string]struct {
		stdin string
		args  []string
	}{
		`member "figure"`: {`{}`, []string{"--png", "-"}},
		"0 panels":        {`{"figure": {}}`, []string{"--png", "-"}},
		"no such file":    {document, []string{"--png", nowhere}},
	} {
		if code, stdout, stderr := plotted(t, c.stdin, c.args...); code != exitFailed || stdout != "" || !strings.HasPrefix(stderr, "retryproxyctl: ") || !strings.Contains(stderr, want) {
			t.Errorf("%q: %d %q %q, expected %q", c.args, code, stdout, stderr, want)
		}
	}
}

// If drawing fails, an existing picture stays.
func TestAFailedDrawingLeavesTheOldPicture(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.png")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	panel := strings.TrimSuffix(strings.SplitN(document, `"panels": [`, 2)[1], `]}}`)
	crowded := `{"figure": {"panels": [` + panel + strings.Repeat(","+panel, 11) + `]}}`
	if code, _, stderr := plotted(t, crowded, "--png", path, "--size", "200x200"); code != exitFailed || !strings.Contains(stderr, "too small") {
		t.Errorf("%d %q", code, stderr)
	}
	if got := readFile(t, path); got != "old" {
		t.Errorf("%q", got)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

// A full disk loses the old picture if the new one is written over it. The second name shows the old file.
func TestANewPictureIsNotWrittenOverTheOldOne(t *testing.T) {
	dir := t.TempDir()
	path, second := filepath.Join(dir, "a.png"), filepath.Join(dir, "b.png")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, second); err != nil {
		t.Skip(err)
	}
	if code, _, stderr := plotted(t, document, "--png", path); code != exitOK {
		t.Fatalf("%d %q", code, stderr)
	}
	if got := readFile(t, second); got != "old" {
		t.Errorf("%d bytes were written over the old picture", len(got))
	}
	if got := sizeOfPNG(t, readFile(t, path)); got != image.Pt(900, 540) {
		t.Error(got)
	}
}
