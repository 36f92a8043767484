package page

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/retryproxy/retryproxy/metrics"
)

func TestHostIsBoundedAndPrintable(t *testing.T) {
	for name, want := range map[string]string{
		"":                       "",
		"shop-7f9c":              "shop-7f9c",
		"a<b>&\"":                "a<b>&\"", // the page shows text, never markup
		"a\n\x1b[2J\x00b":        "a??[2J?b",
		"a\xffb":                 "ab",
		strings.Repeat("h", 300): strings.Repeat("h", maxHost) + "…",
	} {
		p := New(Options{Host: name, Metrics: metrics.New(metrics.Options{}), Process: func() Process { return Process{} }, Upstreams: func() []metrics.Upstream { return nil }})
		if got := p.State(noon).Host; got != want || !utf8.ValidString(got) {
			t.Errorf("%q: %q, expected %q", name, got, want)
		}
	}
}
