package config

import (
	"regexp"
	"strings"
	"testing"
)

func TestHintsNameSettingsThatExist(t *testing.T) {
	for name, hint := range hints {
		if globalKeys()[name] != nil {
			t.Errorf("%s is a setting", name)
		}
		named := regexp.MustCompile(`RETRYPROXY_(\w+)`).FindAllStringSubmatch(hint, -1)
		if len(named) == 0 {
			t.Errorf("%s: the hint names no setting", name)
		}
		for _, m := range named {
			if globalKeys()[m[1]] == nil {
				t.Errorf("%s: there is no setting %s", name, m[0])
			}
		}
	}
}

func TestShortNamesAreNotTakenForOthers(t *testing.T) {
	for _, name := range []string{"PORT", "MUST", "FOO"} {
		if got := nearest(name, globalKeys()); got != "" {
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
		"RETRY_WINDOW":    "is no setting; RETRYPROXY_ROUTE_SEARCH_REQUEST_TIMEOUT bounds a request with all its retries",
		"CIRCUIT_BREAKER": "unknown name; it is on by default; RETRYPROXY_ROUTE_SEARCH_BREAKER=queue, fail-fast or off says",
		"METRICS_PORT":    "unknown name; /metrics is served by the admin listener, RETRYPROXY_ADMIN_LISTEN=:9797",
	} {
		if got := explainUnknown("RETRYPROXY_ROUTE_SEARCH_"+key, RouteNames{"search"}); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
}
