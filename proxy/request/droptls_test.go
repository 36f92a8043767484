package request

import (
	"testing"

	"github.com/retryproxy/retryproxy/proxy/http1"
	"github.com/retryproxy/retryproxy/proxy/settings"
	"github.com/retryproxy/retryproxy/proxy/upstream"
)

// A target of https goes to nobody in plain, also when its own upstream fails.
func TestNoFallbackInPlainForWhatWasMeantForTLS(t *testing.T) {
	plain, err := upstream.ParseTarget("http://spare.example")
	if err != nil {
		t.Fatal(err)
	}
	overTLS, err := upstream.ParseTarget("https://spare.example")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		target  string
		forward bool
		to      upstream.Target
		want    bool
	}{
		{"https://api.example/", true, plain, true},
		{"HTTPS://api.example/", true, plain, true},
		{"https://api.example/", true, overTLS, false},
		{"http://api.example/", true, plain, false},
		{"/", true, plain, false},
		{"https://api.example/", false, plain, false},
	} {
		var q http1.Request
		if _, err := q.Parse([]byte("GET "+c.target+" HTTP/1.1\r\nHost: a\r\n\r\n"), http1.Limits{}); err != nil {
			t.Fatal(err)
		}
		x := &Request{HTTP: &q, Settings: &settings.Settings{Config: &settings.Config{ForwardProxy: c.forward}}}
		if got := x.WouldDropTLS(c.to); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
