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
	for _, name := range []string{"RETRYPROXY_TIMEOUT", "RETRYPROXY_ROUTE_SEARCH_TIMEOUT"} {
		if got := explainUnknown(name, RouteNames{"search"}); !strings.Contains(got, "RETRYPROXY_REQUEST_TIMEOUT") {
			t.Errorf("%s has no hint: %s", name, got)
		}
	}
	if got := explainUnknown("RETRYPROXY_UPSTREAM_HOTS", nil); !strings.Contains(got, "RETRYPROXY_UPSTREAM_HOST?") {
		t.Error(got)
	}
}
