package gatewayapi

import (
	"strings"
	"testing"
)

// For any file there is no panic, each route has an upstream and a match, and no setting is set
// twice or contains a line break.
func FuzzConvert(f *testing.F) {
	for _, c := range conversions {
		f.Add([]byte(c.objects))
	}
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte(`{"apiVersion":"v1","kind":"List","items":[]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		result, err := Convert(content)
		if err != nil {
			return
		}
		values := map[string]string{}
		for _, p := range result.Pairs {
			if values[p.Name] != "" {
				t.Errorf("%s is set twice", p.Name)
			}
			values[p.Name] = p.Value
		}
		for _, name := range result.Routes {
			word := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
			for _, key := range []string{"PATH", "UPSTREAM", "UPSTREAM_HOST"} {
				if values["RETRYPROXY_ROUTE_"+word+"_"+key] == "" {
					t.Errorf("route %q has no %s", name, key)
				}
			}
		}
	})
}
