package cluster

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// plain is an application of three Pods that has no preStop: some connections to
// its Service are refused while Pods end.
const plain = `apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  replicas: 3
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      containers:
      - name: app
        image: retryproxy-application:test
        imagePullPolicy: Never
        ports: [{name: http, containerPort: 3000}]
        readinessProbe: {httpGet: {path: /, port: 3000}, periodSeconds: 1, timeoutSeconds: 10}
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec:
  selector: {app: app}
  ports: [{port: 80, targetPort: http}]
`

// gateway is the overlay with its defaults before the Service app.
func (n *namespace) gateway(t *testing.T) string {
	t.Helper()
	text := engine.Run(t, nil, "bash", script, "kubectl", "kustomize", "deploy/k8s/overlays/gateway")
	for pattern, by := range map[string]string{
		`image: registry\.example/retryproxy:\S+`: "image: " + engine.Image(t),
		`RETRYPROXY_UPSTREAM=\S+`:                 "RETRYPROXY_UPSTREAM=http://app." + n.name + ".svc.cluster.local",
	} {
		before := text
		if text = regexp.MustCompile(pattern).ReplaceAllString(text, by); text == before {
			t.Fatalf("no %s in the overlay", pattern)
		}
	}
	return text
}

// The application is rolled out anew under load behind a gateway with defaults,
// and no request is lost: connections to Pods that end are refused while others
// are answered.
func TestRolloutBehindAGatewayLosesNoRequest(t *testing.T) {
	n := prepare(t)
	n.apply(t, plain)
	n.rolledOut(t, "app")
	n.apply(t, n.gateway(t))
	n.kubectl(t, "rollout", "status", "deployment/retryproxy-gateway", "--timeout=5m")
	url := "http://" + n.address(t, "retryproxy-gateway") + "/"
	engine.Await(t, "answer through the gateway", func() bool {
		status, _ := engine.Get(url)
		return status == 200
	})
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	l := startLoad(url, 100)
	n.kubectl(t, "rollout", "restart", "deployment/app")
	n.rolledOut(t, "app")
	<-ctx.Done()
	l.end(t, 1000)
}
