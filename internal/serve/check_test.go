package serve

import (
	"strings"
	"testing"
)

func TestUnreadableFilesAreReportedBesideOtherErrors(t *testing.T) {
	_, problems := Check([]string{
		"RETRYPROXY_UPSTREAM=https://example.com", "RETRYPROXY_MAX_RETRIES=many", "RETRYPROXY_TLS_CERT=/none/tls.pem",
		"RETRYPROXY_REQUEST_HEADERS_FILE=/none/headers", "RETRYPROXY_UPSTREAM_HOST=ä",
		"RETRYPROXY_ROUTES=a", "RETRYPROXY_ROUTE_A_PATH=/a", "RETRYPROXY_ROUTE_A_UPSTREAM_CA=/none/ca.pem",
	}, func(string) string { return "" })
	var named []string
	for _, p := range problems.Errors() {
		named = append(named, strings.TrimPrefix(p.Variable, "RETRYPROXY_"))
	}
	// The files come last, each variable once.
	if got, want := strings.Join(named, " "), "UPSTREAM_HOST MAX_RETRIES REQUEST_HEADERS_FILE TLS_CERT ROUTE_A_UPSTREAM_CA"; got != want {
		t.Errorf("%s, expected %s: %v", got, want, problems)
	}
}
