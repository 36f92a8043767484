package inject

import (
	"strings"
	"testing"
)

// A change beside them does not fold lines that a person keeps long.
func TestLongLinesStayAsTheyAre(t *testing.T) {
	const long = "[--first=aaaaaaaaaaaaaaaaaaaaaaaa, --second=bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb, --third=cccccccccccccccccccccccccc]"
	words := strings.TrimSpace(strings.Repeat("word ", 40))
	in := "apiVersion: v1\nkind: Pod\nmetadata: {name: shop, annotations: {about: \"" + words + "\"}}\nspec:\n  containers:\n" +
		"  - name: shop\n    args: " + long + "\n    env:\n    - name: API_URL\n      value: http://api\n    - name: ABOUT\n      value: " + words + "\n"
	o := Default("retryproxy:1")
	o.OutboundEnv = []string{"API_URL"}
	got, err := Stream([]byte(in), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"args: " + long + "\n", "value: " + words + "\n", "about: \"" + words + "\""} {
		if !strings.Contains(string(got.Output), line) {
			t.Errorf("expected %q in\n%s", line, got.Output)
		}
	}
}
