package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// shop is an application of two Pods and its Service, which targets the port by
// its number. At SIGTERM it ends at once, whatever it has.
func shop(port, lifecycle string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 40
      containers:
      - name: shop
        image: retryproxy-application:test
        imagePullPolicy: Never
        env: [{name: ABRUPT, value: "true"}]
        ports: [%s]
        readinessProbe: {httpGet: {path: /, port: 3000}, periodSeconds: 1, timeoutSeconds: 10}
        lifecycle: %s
        securityContext: %s
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  selector: {app: shop}
  ports: [{port: 80, targetPort: 3000}]
`, port, lifecycle, restricted)
}

// injected is what `retryproxyctl inject` makes of manifests.
func injected(t *testing.T, manifests string, flags ...string) string {
	t.Helper()
	return engine.Run(t, nil, programs(t)+"/retryproxyctl", append([]string{"inject", "-f", write(t, manifests), "--image", engine.Image(t), "--pull-policy", "Never"}, flags...)...)
}

// Sidecars move in and out again under load, and no request is lost: while Pods
// with and without one stand behind a Service that names the port by its number.
func TestSidecarsMoveInWithoutALostRequest(t *testing.T) {
	for _, tc := range []struct {
		name, port string
		steps      [][]string // flags of inject, one rollout after the other
	}{
		{"port with a name", "{name: http, containerPort: 3000}", [][]string{nil}},
		{"port without a name", "{containerPort: 3000}", [][]string{nil, {"--lead-services"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := prepare(t)
			before := shop(tc.port, "{preStop: {sleep: {seconds: 20}}}") // Pods without a sidecar, too, serve until nobody sends to them
			n.apply(t, before)
			n.rolledOut(t, "shop")
			answers(t, "http://"+n.address(t, "shop")+"/") // kube-proxy knows the Service
			l := startLoad("http://"+n.address(t, "shop")+"/", 50)
			for _, flags := range tc.steps {
				manifests := injected(t, before, flags...)
				l.step(t, fmt.Sprint("what inject prints is applied, flags ", flags))
				n.apply(t, manifests)
				n.rolledOut(t, "shop")
				l.step(t, "no Pod of before is left")
			}
			n.leadsToSidecars(t)
			l.end(t, 500)
		})
	}
}

// leadsToSidecars wants the Service to lead to the sidecars' port only.
func (n *namespace) leadsToSidecars(t *testing.T) {
	t.Helper()
	engine.Await(t, "Service that leads to the sidecars only", func() bool {
		ports := n.kubectl(t, "get", "endpointslices", "-l", "kubernetes.io/service-name=shop", "-o",
			`jsonpath={range .items[?(@.endpoints)]}{.ports[0].port} {end}`)
		return strings.TrimSpace(ports) == "18080"
	})
	time.Sleep(2 * time.Second) // requests that now come through them
}

// An application that ends at once at SIGTERM costs no request, however slow: it
// is told to end when its sidecar has drained.
func TestPodsEndWithoutALostSlowRequest(t *testing.T) {
	n := prepare(t)
	n.apply(t, injected(t, shop("{name: http, containerPort: 3000}", "{}"), "--set-inbound", "ATTEMPT_TIMEOUT=25s"))
	n.rolledOut(t, "shop")
	answers(t, "http://"+n.address(t, "shop")+"/")
	l := startLoad("http://"+n.address(t, "shop")+"/?delay=12s", 20)
	time.Sleep(time.Second) // the first are in flight
	n.kubectl(t, "rollout", "restart", "deployment/shop")
	n.rolledOut(t, "shop")
	l.end(t, 100)
}
