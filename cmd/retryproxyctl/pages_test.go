//go:build !small

package main

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// pasted returns the command lines of the guides that a reader may paste.
func pasted(t *testing.T) []string {
	t.Helper()
	var lines []string
	for _, guide := range []string{"docs/how-to/backoff.md", "docs/explanation/backoff.md", "docs/explanation/storm.md"} {
		lines = append(lines, regexp.MustCompile(`(?m)^retryproxyctl (plan|simulate) .*$`).FindAllString(readFile(t, filepath.Join(root, guide)), -1)...)
	}
	if len(lines) < 5 {
		t.Fatalf("only %d commands", len(lines))
	}
	return lines
}

// workshop returns a directory with the command in its bin, where pictures can be drawn.
func workshop(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the command")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin")+"/", "./cmd/retryproxyctl")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.MkdirAll(filepath.Join(dir, "docs/pictures"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Every command in the guides works as pasted, and draws the picture that the guide shows.
func TestTheGuideShowsWhatItsCommandsDraw(t *testing.T) {
	dir := workshop(t)
	picture := regexp.MustCompile(`--png (docs/pictures/\S+)`)
	for _, line := range pasted(t) {
		c := exec.Command("sh", "-c", line)
		c.Dir = dir
		c.Env = []string{"PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "RETRYPROXY_UPSTREAM=http://localhost:3000"}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%s\n%v\n%s", line, err, out)
			continue
		}
		if drawn := picture.FindStringSubmatch(line); drawn != nil {
			compare(t, filepath.Join(dir, drawn[1]), filepath.Join(root, drawn[1]))
		}
	}
}

// compare allows for differences in the last digits on other processors.
func compare(t *testing.T, got, want string) {
	t.Helper()
	a, b := decode(t, got), decode(t, want)
	if a.Bounds() != b.Bounds() {
		t.Errorf("%s: %v, expected %v; run make pictures", want, a.Bounds(), b.Bounds())
		return
	}
	differ := 0
	for y := range a.Bounds().Dy() {
		for x := range a.Bounds().Dx() {
			if differs(a.At(x, y), b.At(x, y)) {
				differ++
			}
		}
	}
	if all := a.Bounds().Dx() * a.Bounds().Dy(); differ*1000 > all {
		t.Errorf("%s: %d of %d pixels are not current; run make pictures", want, differ, all)
	}
}

func differs(a, b color.Color) bool {
	p, q := color.GrayModel.Convert(a).(color.Gray), color.GrayModel.Convert(b).(color.Gray)
	return max(p.Y, q.Y)-min(p.Y, q.Y) > 16
}

func decode(t *testing.T, path string) image.Image {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	m, err := png.Decode(file)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

// Every picture is shown on some page; a large one would slow down every clone.
func TestPicturesAreSmallAndShown(t *testing.T) {
	documents, err := filepath.Glob(filepath.Join(root, "docs/*/*.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := readFile(t, filepath.Join(root, "README.md"))
	for _, d := range documents {
		text += readFile(t, d)
	}
	pictures, err := filepath.Glob(filepath.Join(root, "docs/pictures/*"))
	if err != nil || len(pictures) == 0 {
		t.Fatal(pictures, err)
	}
	for _, p := range pictures {
		if !strings.Contains(text, "pictures/"+filepath.Base(p)+")") {
			t.Errorf("%s is shown nowhere", p)
		}
		if info, err := os.Stat(p); err != nil || info.Size() > 200_000 {
			t.Errorf("%s: %d bytes, %v", p, info.Size(), err)
		}
	}
}
