package config

import (
	"maps"
	"regexp"
	"strings"
	"testing"
)

// A hint is for a name that is not a setting, and names only existing settings.
func TestHintsNameSettingsThatExist(t *testing.T) {
	seen := map[string]bool{}
	for _, h := range hints {
		for _, name := range strings.Fields(h.names) {
			if globalKeys()[name] != nil || routeKeys()[name] != nil || seen[name] {
				t.Errorf("%s is a setting, or has two hints", name)
			}
			seen[name] = true
		}
		for _, name := range regexp.MustCompile(Prefix+`[A-Z_]+`).FindAllString(h.hint, -1) {
			if globalKeys()[strings.TrimPrefix(name, Prefix)] == nil {
				t.Errorf("%s: there is no setting %s", h.names, name)
			}
		}
	}
}

func TestShortNamesAreNotTakenForOthers(t *testing.T) {
	for _, name := range []string{"PORT", "MUST", "FOO"} {
		if got := Nearest(name, maps.Keys(globalKeys())); got != "" {
			t.Errorf("%s is taken for %s", name, got)
		}
	}
	if got := explainUnknown("RETRYPROXY_TIMEOUT", nil); !strings.Contains(got, "RETRYPROXY_REQUEST_TIMEOUT (") {
		t.Error(got)
	}
	if got := explainUnknown("RETRYPROXY_UPSTREAM_HOTS", nil); !strings.Contains(got, "RETRYPROXY_UPSTREAM_HOST?") {
		t.Error(got)
	}
}

// A hint about a setting of a route names what that route can have.
func TestAHintForARouteNamesTheSettingOfTheRoute(t *testing.T) {
	for key, want := range map[string]string{
		"TIMEOUT":         "unknown name; did you mean RETRYPROXY_ROUTE_SEARCH_REQUEST_TIMEOUT (a request with all its retries) or RETRYPROXY_ROUTE_SEARCH_ATTEMPT_TIMEOUT (one attempt)?",
		"CONNECT_TIMEOUT": "unknown name; a connection has 3s, or RETRYPROXY_ROUTE_SEARCH_ATTEMPT_TIMEOUT if that is shorter",
		"CIRCUIT_BREAKER": "unknown name; it is on by default; RETRYPROXY_ROUTE_SEARCH_BREAKER=queue, fail-fast or off says",
		"METRICS_PORT":    "unknown name; /metrics is served by the admin listener, RETRYPROXY_ADMIN_LISTEN=:9797",
	} {
		if got := explainUnknown("RETRYPROXY_ROUTE_SEARCH_"+key, RouteNames{"search"}); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
