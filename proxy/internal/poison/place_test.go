//go:build poison || race

package poison

import (
	"strings"
	"testing"
)

func taken(skip int) Place { return CallerPlace(skip) }

func TestAPlaceIsTheCallers(t *testing.T) {
	first := func(skip int) string {
		p := taken(skip)
		line, _, _ := strings.Cut(p.String(), "\n")
		return line
	}
	for skip, want := range []string{"poison.TestAPlaceIsTheCallers.func1 ", "poison.TestAPlaceIsTheCallers "} {
		if got := first(skip); !strings.Contains(got, want) || !strings.Contains(got, "place_test.go:") {
			t.Errorf("skipping %d: %q, want %q", skip, got, want)
		}
	}
}
