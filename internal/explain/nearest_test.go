package explain

import (
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/internal/config"
)

func TestTheNearestRouteIsExplained(t *testing.T) {
	s, problems := config.Load([]string{
		"RETRYPROXY_UPSTREAM=http://localhost:3000", "RETRYPROXY_ROUTES=read,write,shop,admin",
		"RETRYPROXY_ROUTE_READ_PATH=/read", "RETRYPROXY_ROUTE_WRITE_PATH=/write/*", "RETRYPROXY_ROUTE_WRITE_METHODS=POST,PUT",
		"RETRYPROXY_ROUTE_SHOP_PATH=/shop", "RETRYPROXY_ROUTE_SHOP_HOST=shop.example.com", "RETRYPROXY_ROUTE_ADMIN_PATH=/Admin", "RETRYPROXY_ROUTE_ADMIN_HEADER=X-Role=admin",
	})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, target, header, route, want string
	}{
		{"GET", "/read/1", "", "read", "its path /read does not match /read/1; /read/* would match it and everything below /read"},
		{"GET", "/read/", "", "read", "paths with and without a slash at the end differ"},
		{"GET", "/write/1", "", "write", "its methods are POST,PUT"},
		{"GET", "http://example.com/shop", "", "shop", "its host is shop.example.com, not example.com"},
		{"GET", "/admin", "X-Role: admin", "admin", "since paths are case-sensitive"},
		{"GET", "/Admin", "", "admin", "the request lacks its header X-Role=admin"},
	} {
		var headers []string
		if tc.header != "" {
			headers = append(headers, tc.header)
		}
		head, err := RequestHead(tc.method, tc.target, headers, false)
		if err != nil {
			t.Fatal(err)
		}
		v, err := Explain(s, head, "", "")
		if err != nil {
			t.Fatal(err)
		}
		if v.Nearest == nil || v.Nearest.Route != tc.route || !strings.Contains(v.Nearest.Why, tc.want) {
			t.Errorf("%s %s: %+v, want %s: %s", tc.method, tc.target, v.Nearest, tc.route, tc.want)
		}
	}
	head, _ := RequestHead("GET", "/read", nil, false)
	if v, _ := Explain(s, head, "", ""); v.Route != "read" || v.Nearest != nil {
		t.Errorf("%+v", v)
	}
}
