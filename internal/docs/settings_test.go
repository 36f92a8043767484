package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
)

func TestTheExampleOfAConfigurationFileIsValid(t *testing.T) {
	_, rest, _ := strings.Cut(Settings(), "```yaml\n")
	example, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("no example")
	}
	file := filepath.Join(t.TempDir(), "retryproxy.yaml")
	if err := os.WriteFile(file, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	s, problems := config.Load([]string{"RETRYPROXY_CONFIG_FILE=" + file})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if route := s.Find("search"); route == nil || route.MaxRetries != 5 {
		t.Errorf("route search: %+v", route)
	}
}
