package inject

import (
	"strings"
	"testing"
)

// A copy stands where its alias stood, on the same line, with the alias's own comment.
func TestAnAliasKeepsItsPlace(t *testing.T) {
	const in = `apiVersion: v1
kind: Pod
metadata:
  name: shop
  labels: &labels
    app: shop # its name
    # in front of others
    tier: front
  annotations: {first: a, copied: &text "b", last: c}
spec:
  nodeSelector: {zone: x, <<: *labels, disk: ssd} # both
  containers:
  - {name: shop, image: *text, env: [{name: API_URL, value: http://api}], args: [a, *text, z]}
  - name: log
    resources: {requests: {cpu: 1m, <<: [&least {cpu: 2m, memory: 1Mi}, {disk: 1Gi}], pods: 1}}
    limits:
      <<: *least # the same
      pods: 2
    image: *text # again
`
	o := Default("retryproxy:1")
	o.OutboundEnv = []string{"API_URL"}
	got, err := Stream([]byte(in), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"  nodeSelector: {zone: x, app: shop, tier: front, disk: ssd} # both\n",
		`  - {name: shop, image: "b", env: [{name: API_URL, value: 'http://127.0.0.1:18180'}], args: [a, "b", z]}` + "\n",
		"    resources: {requests: {cpu: 1m, memory: 1Mi, disk: 1Gi, pods: 1}}\n",
		"    limits:\n      cpu: 2m\n      memory: 1Mi\n      pods: 2\n",
		"    app: shop # its name\n    # in front of others\n    tier: front\n",
		"    image: \"b\" # again\n",
	} {
		if !strings.Contains(string(got.Output), line) {
			t.Errorf("expected %q in\n%s", line, got.Output[:strings.Index(string(got.Output), "initContainers")])
		}
	}
}
