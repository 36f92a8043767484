package terminal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestScreenOfATerminal(t *testing.T) {
	utf8 := map[string]string{"LANG": "en_GB.UTF-8"}
	for name, c := range map[string]struct {
		width int
		env   map[string]string
		want  Screen
	}{
		"as it is":          {120, utf8, Screen{Width: 120, Color: true, Unicode: true}},
		"NO_COLOR":          {120, map[string]string{"LANG": "C.utf8", "NO_COLOR": "1"}, Screen{Width: 120, Unicode: true}},
		"dumb":              {120, map[string]string{"LANG": "C.UTF-8", "TERM": "dumb"}, Screen{Width: 120}},
		"COLUMNS":           {120, map[string]string{"LANG": "C.UTF-8", "COLUMNS": "66"}, Screen{Width: 66, Color: true, Unicode: true}},
		"COLUMNS of words":  {120, map[string]string{"COLUMNS": "wide"}, Screen{Width: 120, Color: true}},
		"unknown width":     {0, nil, Screen{Width: 80, Color: true}},
		"LC_ALL goes first": {90, map[string]string{"LC_ALL": "C", "LANG": "C.UTF-8"}, Screen{Width: 90, Color: true}},
	} {
		if got := of(c.width, func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%s: %+v, expected %+v", name, got, c.want)
		}
	}
}

func TestDevicesAreNoTerminals(t *testing.T) {
	for _, name := range []string{"/dev/null", "/dev/full", "/dev/zero"} {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			continue // not on every system
		}
		if Is(f) {
			t.Errorf("%s is taken for a terminal", name)
		}
		f.Close()
	}
	if Is(&bytes.Buffer{}) || Is(nil) {
		t.Error("something that is no file is taken for a terminal")
	}
}

func TestWhatIsNoTerminalIsPlain(t *testing.T) {
	rich := func(name string) string {
		return map[string]string{"LANG": "C.UTF-8", "COLUMNS": "200"}[name]
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	plain := Screen{Width: 80}
	if got := ScreenOf(file, rich); got != plain {
		t.Errorf("file: %+v", got)
	}
	if got := ScreenOf(write, rich); got != plain {
		t.Errorf("pipe: %+v", got)
	}
	if got := ScreenOf(&bytes.Buffer{}, rich); got != plain {
		t.Errorf("buffer: %+v", got)
	}
}
