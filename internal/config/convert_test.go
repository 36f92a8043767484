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
		got.set(p.Name, p.Value)
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
		file+`:2: max_retrys: "3": unknown name; did you mean max_retries?`,
		file+`:6: routes[0].max_retries: "many": expected a whole number, from 0 to 100`)
}

// A message about a YAML file names settings as the file does, and those of the environment as the
// environment does.
func TestAProblemOfYAMLNamesSettingsAsTheFileDoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "retryproxy.yaml")
	if err := os.WriteFile(file, []byte("attempt_timeout: 20s\nupstream_ca: /none.pem\nroutes:\n  - name: a-b\n    request_timeout: 5s\n    strip_prefix: /x\n    path: /y\n    max_retris: 1\n  - name: none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, problemsOf("RETRYPROXY_CONFIG_FILE="+file, "RETRYPROXY_UPSTREAM=http://example.com", "RETRYPROXY_REQUEST_TIMEOUT=10s"),
		file+`:8: routes[0].max_retris: "1": unknown name; did you mean max_retries?`,
		file+`:2: upstream_ca: "/none.pem": has no effect on the upstream http://example.com:80, which is not https`,
		file+`:1: attempt_timeout: "20s": must be less than RETRYPROXY_REQUEST_TIMEOUT=10s,`,
		file+`:1: attempt_timeout: "20s": must be less than routes[0].request_timeout=5s,`,
		file+`:6: routes[0].strip_prefix: "/x": routes[0].path="/y" does not begin with /x`,
		file+`:9: routes[1].path: route none has no matcher; set at least one of path, host, methods, header, model and listen, or make it the FALLBACK of another route`)
}

func TestSettingsOfARouteWithoutANameAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "retryproxy.yaml")
	if err := os.WriteFile(file, []byte("upstream: http://a\nroutes:\n  - path: /a\n    max_retries: many\n  - name: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, problemsOf("RETRYPROXY_CONFIG_FILE="+file),
		file+`:3: expected a route with a name`,
		file+`:4: routes[0].max_retries: "many": expected a whole number, from 0 to 100`,
		file+`:5: routes[1].path: route b has no matcher`)
}

// A setting that is missing is one of the YAML file, unless the environment sets it wrongly.
func TestAMissingSettingIsOneOfTheYAMLFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "retryproxy.yaml")
	if err := os.WriteFile(file, []byte("routes:\n  - name: a\n    path: /a\n    timeout: 3s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, problemsOf("RETRYPROXY_CONFIG_FILE="+file, "RETRYPROXY_MAX_RETRIES=many", "RETRYPROXY_TLS_CLIENT_CA=/ca.pem"),
		file+`:4: routes[0].timeout: "3s": unknown name; did you mean request_timeout (a request with all its retries) or attempt_timeout (one attempt)?`,
		`RETRYPROXY_MAX_RETRIES="many": expected a whole number`,
		file+`: upstream: must be set, for example to http://localhost:3000`,
		`RETRYPROXY_TLS_CLIENT_CA="/ca.pem": has no effect without RETRYPROXY_TLS_CERT`)
	env := filepath.Join(t.TempDir(), "retryproxy.env")
	if err := os.WriteFile(env, []byte("RETRYPROXY_MAX_RETRIES=3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantLines(t, problemsOf("RETRYPROXY_CONFIG_FILE="+env), "RETRYPROXY_UPSTREAM: must be set")
}
