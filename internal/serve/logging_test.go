package serve

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
)

func TestDurationsInTheLogAreNumbersOfSeconds(t *testing.T) {
	for _, columns := range []bool{false, true} {
		var b strings.Builder
		newLogger(&b, columns).Info("m", zap.Duration("a_seconds", 448391*time.Nanosecond), zap.Duration("b_seconds", 20006*time.Millisecond))
		if !strings.Contains(b.String(), "0.000448391,") || !strings.Contains(b.String(), " 20.006}") && !strings.Contains(b.String(), ":20.006}") {
			t.Errorf("columns %v: %s", columns, b.String())
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
