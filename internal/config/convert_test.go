package config

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config/configfile"
)

// Every setting, global or of one route, is unchanged after a conversion to YAML and back.
func TestEverySettingExistsInBothForms(t *testing.T) {
	environ := []string{"RETRYPROXY_UPSTREAM=https://example.com", "RETRYPROXY_ROUTES=user-api,b", "RETRYPROXY_ROUTE_B_PATH=/b,/c/*"}
	for _, s := range Reference() {
		value, known := otherValues[s.Key]
		switch {
		case !known || s.Key == "ROUTES" || s.Key == "UPSTREAM":
		case s.Scope == ScopeGlobal:
			environ = append(environ, Prefix+s.Key+"="+value)
		case s.Scope == ScopeShared:
			environ = append(environ, Prefix+s.Key+"="+value, Prefix+"ROUTE_USER_API_"+s.Key+"="+value)
		}
	}
	content, problems := YAML(environ)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	file := filepath.Join(t.TempDir(), "retryproxy.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	pairs, err := configfile.Read(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, content)
	}
	want := variables{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		want[name] = value
	}
	got := variables{}
	for _, p := range pairs {
		got[p.Name] = p.Value
	}
	if !maps.Equal(got, want) {
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s=%q became %q", name, value, got[name])
			}
		}
		t.Errorf("%d variables became %d\n%s", len(want), len(got), content)
	}
	if len(got) < 100 {
		t.Errorf("only %d settings were tried", len(got))
	}
}

func TestAProblemNamesTheLineOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "retryproxy.yaml")
	if err := os.WriteFile(file, []byte("upstream: https://example.com\nmax_retrys: 3\nroutes:\n  - name: a\n    path: /a\n    max_retries: many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, problemsOf("RETRYPROXY_CONFIG_FILE="+file),
		"RETRYPROXY_MAX_RETRYS=\"3\": unknown name; did you mean RETRYPROXY_MAX_RETRIES? (line 2 of "+file+")",
		"RETRYPROXY_ROUTE_A_MAX_RETRIES=\"many\": expected a whole number, from 0 to 100 (line 6 of "+file+")")
}
