package serve

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/retryproxy/retryproxy/internal/config"
	"github.com/retryproxy/retryproxy/internal/logwriter"
	"github.com/retryproxy/retryproxy/internal/terminal"
)

func TestDurationsInTheLogAreNumbersOfSeconds(t *testing.T) {
	for _, columns := range []bool{false, true} {
		var b strings.Builder
		newLogger(&b, columns, zapcore.InfoLevel).Info("m", zap.Duration("a_seconds", 448391*time.Nanosecond), zap.Duration("b_seconds", 20006*time.Millisecond))
		if !strings.Contains(b.String(), "0.000448391,") || !strings.Contains(b.String(), " 20.006}") && !strings.Contains(b.String(), ":20.006}") {
			t.Errorf("columns %v: %s", columns, b.String())
		}
	}
}

// screen is a terminal that records what is written to it.
type screen struct {
	bytes.Buffer
	file *os.File
}

func (s *screen) Unwrap() io.Writer { return s.file }

// A person gets what check prints, other programs lines of JSON.
func TestTheStartOnATerminalShowsWhatCheckPrints(t *testing.T) {
	settings, problems := config.Load([]string{"RETRYPROXY_UPSTREAM=http://localhost:3000", "RETRYPROXY_RETRY_METHODS=GET,PATHC"})
	show := func(out io.Writer) {
		w := logwriter.New(out)
		a := &app{log: newLogger(w, terminal.Is(w), zapcore.InfoLevel), options: &Options{Log: w, Getenv: func(name string) string { return map[string]string{"NO_COLOR": "1"}[name] }}}
		a.showConfig(settings, problems)
		w.Close(time.Minute)
	}
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0) // the master of a new terminal
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = file.Close() }()
	terminal := &screen{file: file}
	show(terminal)
	for _, want := range []string{"did you mean PATCH?", "inbound: clients at :8080, upstream http://localhost:3000, admin at :9797\n", "route default\n", ", 1 warning\n"} {
		if !strings.Contains(terminal.String(), want) {
			t.Errorf("no %q in %s", want, terminal.String())
		}
	}
	for line := range strings.Lines(terminal.String()) {
		if len(line) > 200 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	var log bytes.Buffer
	show(&log)
	if !strings.Contains(log.String(), `"msg":"effective configuration"`) {
		t.Errorf("%s", log.String())
	}
}

func TestTheLogLevelLeavesOutLines(t *testing.T) {
	for level, want := range map[string]int{"info": 3, "warn": 2, "error": 1} {
		s, _ := config.Load([]string{"RETRYPROXY_UPSTREAM=http://localhost:3000", "RETRYPROXY_LOG_LEVEL=" + level})
		var b strings.Builder
		log := newLogger(&b, false, levelOf(s))
		log.Info("a")
		log.Warn("b")
		log.Error("c")
		if got := strings.Count(b.String(), "\n"); got != want {
			t.Errorf("%s: %d lines, want %d", level, got, want)
		}
	}
}

// Durations are logged as numbers, so their keys must name the unit.
func TestKeysOfDurationsInTheLogSaySeconds(t *testing.T) {
	duration := regexp.MustCompile(`(?:zap\.Duration|AddDuration)\("(\w+)"`)
	millis := regexp.MustCompile(`(?:zap|enc)\.\w+\("((?:\w+_)?ms)"`)
	found := 0
	for _, dir := range []string{"../../cmd", "../../proxy", "../../fleet", "../../internal"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			code, err := os.ReadFile(path)
			for _, m := range duration.FindAllStringSubmatch(string(code), -1) {
				if found++; !strings.HasSuffix(m[1], "_seconds") {
					t.Errorf("%s: a duration's key is %q, which does not end in _seconds", path, m[1])
				}
			}
			for _, m := range millis.FindAllStringSubmatch(string(code), -1) {
				t.Errorf("%s: the key %q: durations are logged in seconds", path, m[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 8 {
		t.Errorf("only %d durations found", found)
	}
}
