package config

import (
	"strings"
	"testing"
	"time"
)

// A dash in a route's name is an underscore in its variables.
func TestRouteNamesWithDashes(t *testing.T) {
	s := mustLoad(t, "RETRYPROXY_ROUTES=user-api,user,user-api-v2",
		"RETRYPROXY_ROUTE_USER_API_PATH=/api/*", "RETRYPROXY_ROUTE_USER_PATH=/user", "RETRYPROXY_ROUTE_USER_API_V2_PATH=/v2",
		"RETRYPROXY_ROUTE_USER_API_UPSTREAM_HOST=a.test", "RETRYPROXY_ROUTE_USER_API_V2_REQUEST_TIMEOUT=7s")
	for name, path := range map[string]string{"user-api": "/api/*", "user": "/user", "user-api-v2": "/v2"} {
		if got := s.Find(name).Path; got != path {
			t.Errorf("%s has the path %q, want %q", name, got, path)
		}
	}
	if got := s.Find("user-api").Variable("UPSTREAM_HOST"); got != "RETRYPROXY_ROUTE_USER_API_UPSTREAM_HOST" {
		t.Errorf("set by %q", got)
	}
	if s.Find("user-api-v2").RequestTimeout != 7*time.Second || s.Find("user-api").RequestTimeout != 30*time.Second {
		t.Error("a timeout belongs to another route")
	}
}

func TestRouteNamesThatAreUnclear(t *testing.T) {
	for environ, want := range map[string]string{
		"ROUTES=a,a-upstream ROUTE_A_PATH=/a ROUTE_A_UPSTREAM_PATH=/b ROUTE_A_UPSTREAM_HOST=x.test": `RETRYPROXY_ROUTE_A_UPSTREAM_HOST could set UPSTREAM_HOST of one route or HOST of another; rename one of them`,
		"ROUTES=a-b,A-B ROUTE_A_B_PATH=/a":                                    `"A-B" is listed twice`,
		"ROUTES=user ROUTE_USER_PATH=/ ROUTE_USER_API_UPSTREAM=http://a":      `RETRYPROXY_ROUTE_USER_API_UPSTREAM`,
		"ROUTES=user-api ROUTE_USER_API_PATH=/ ROUTE_ORDER_API_MAX_RETRIES=1": `does not name a route "order-api"`,
		"ROUTES=user-api ROUTE_USER_API_PATH=/ ROUTE_USER_API_MAX_RETRYS=1":   `did you mean RETRYPROXY_ROUTE_USER_API_MAX_RETRIES?`,
	} {
		var vars []string
		for _, v := range strings.Fields(environ) {
			vars = append(vars, "RETRYPROXY_"+v)
		}
		if got := problemsOf(append(vars, minimal)...); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("%s: got %q, want %q", environ, got, want)
		}
	}
}

// Every path of a route must begin with the prefix to strip.
func TestStripPrefixIsOfEveryPath(t *testing.T) {
	const strip = "RETRYPROXY_ROUTE_A_STRIP_PREFIX=/api"
	if got := problemsOf(minimal, "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/api/x/*, /api/y", strip); got != nil {
		t.Error(got)
	}
	got := problemsOf(minimal, "RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/api/x/*,/apis,/z", strip)
	if len(got) != 2 || !strings.Contains(got[0], `PATH="/apis" does not begin with /api`) || !strings.Contains(got[1], `PATH="/z" does not begin with /api`) {
		t.Error(got)
	}
}
