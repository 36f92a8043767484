package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// gateway is the overlay before an upstream.
func (n *namespace) gateway(t *testing.T, upstream string) string {
	t.Helper()
	text := kubectl(t, "kustomize", "deploy/k8s/overlays/gateway")
	before := text
	if text = regexp.MustCompile(`RETRYPROXY_UPSTREAM=\S+`).ReplaceAllString(text, "RETRYPROXY_UPSTREAM="+upstream); text == before {
		t.Fatal("no RETRYPROXY_UPSTREAM in the overlay")
	}
	return text
}

// startGateway runs the overlay before the Service app and waits for its two Pods.
func (n *namespace) startGateway(t *testing.T) {
	t.Helper()
	n.apply(t, n.gateway(t, "http://app."+n.name+".svc.cluster.local"))
	engine.Await(t, "two gateways", func() bool {
		return n.kubectl(t, "get", "deployment", "retryproxy-gateway", "-o", "jsonpath={.status.readyReplicas}") == "2"
	})
	answers(t, "http://"+n.address(t, "retryproxy-gateway")+"/")
}

// The application is rolled out anew under load behind a gateway with defaults,
// and no request is lost: connections to Pods that end are refused while others
// are answered.
func TestRolloutBehindAGatewayLosesNoRequest(t *testing.T) {
	n := prepare(t)
	n.apply(t, store("app"))
	n.rolledOut(t, "app")
	n.startGateway(t)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	l := startLoad("http://"+n.address(t, "retryproxy-gateway")+"/", 100)
	n.kubectl(t, "rollout", "restart", "deployment/app")
	n.rolledOut(t, "app")
	<-ctx.Done()
	l.end(t, 1000)
}

// One of two gateways goes. In order, clients do not notice. Killed, only what it had in flight
// and what still came to it is lost: the other one serves on.
func TestOneOfTwoGatewaysGoes(t *testing.T) {
	n := prepare(t)
	n.apply(t, store("app"))
	n.rolledOut(t, "app")
	n.startGateway(t)
	c := n.client(t, "client")
	for _, e := range []struct {
		name string
		do   func(name string)
		free bool
	}{
		{"gateway's Pod deleted", func(name string) { n.kubectl(t, "delete", "pod", name) }, true},
		{"gateway's process killed", func(name string) { n.killContainer(t, name, "retryproxy") }, false},
	} {
		name, _ := n.pod(t, "app.kubernetes.io/name=retryproxy-gateway")
		c.start(t, "http://retryproxy-gateway."+n.name+".svc.cluster.local/", 200)
		time.Sleep(2 * time.Second)
		e.do(name)
		time.Sleep(8 * time.Second)
		n.ready(t, "retryproxy-gateway")
		r := c.stop(t)
		fmt.Printf("| %s | %d of %d failed in %d seconds %s | p99 %.0f ms |\n", e.name, r.Failed, r.Sent, r.Seconds, r.kinds(), r.P99)
		if e.free && r.Failed > 0 || r.Failed > r.Sent/10 {
			t.Errorf("%s: %d of %d requests failed: %s", e.name, r.Failed, r.Sent, r.kinds())
		}
	}
}

// customMetrics runs prometheus-adapter with our rule, and lets the API server ask it.
func (n *namespace) customMetrics(t *testing.T, prometheus string) {
	t.Helper()
	toolImage(t, adapterImage, "adapter")
	rule, err := os.ReadFile(filepath.Join(engine.Root(t), "deploy/prometheus/adapter.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	services := ""
	for _, version := range []string{"v1beta1", "v1beta2"} {
		services += fmt.Sprintf(`apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %s.custom.metrics.k8s.io}
spec:
  service: {name: adapter, namespace: %s}
  group: custom.metrics.k8s.io
  version: %s
  insecureSkipTLSVerify: true
  groupPriorityMinimum: 100
  versionPriority: 100
---
`, version, n.name, version)
		engine.Cleanup(t, func() {
			if out, err := n.try(t, "delete", "apiservice", version+".custom.metrics.k8s.io"); err != nil {
				t.Error(out)
			}
		})
	}
	engine.Cleanup(t, func() {
		if out, err := n.try(t, "delete", "clusterrolebinding", n.name+"-adapter"); err != nil {
			t.Error(out)
		}
	})
	n.apply(t, fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: adapter}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-adapter}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: adapter, namespace: %[1]s}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: adapter}
data:
  config.yaml: |
    %[2]s
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: adapter}
spec:
  selector: {matchLabels: {app: adapter}}
  template:
    metadata: {labels: {app: adapter}}
    spec:
      serviceAccountName: adapter
      containers:
      - name: adapter
        image: %[3]s
        imagePullPolicy: Never
        args: [--secure-port=6443, --cert-dir=/tmp, --config=/etc/adapter/config.yaml, "--prometheus-url=%[4]s", --metrics-relist-interval=15s, --metrics-max-age=1m]
        readinessProbe: {httpGet: {path: /readyz, port: 6443, scheme: HTTPS}, periodSeconds: 1}
        securityContext: %[5]s
        volumeMounts: [{name: config, mountPath: /etc/adapter}, {name: tmp, mountPath: /tmp}]
      volumes: [{name: config, configMap: {name: adapter}}, {name: tmp, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: adapter}
spec: {selector: {app: adapter}, ports: [{port: 443, targetPort: 6443}]}
---
%[6]s`, n.name, strings.ReplaceAll(strings.TrimSpace(string(rule)), "\n", "\n    "), adapterImage, prometheus, restricted, services))
	n.ready(t, "adapter")
}

// The gateway's autoscaler follows retryproxy_requests_in_flight: by way of Prometheus, which
// finds the gateways as the PodMonitor says, and prometheus-adapter with our rule.
func TestTheGatewayScalesByRequestsInFlight(t *testing.T) {
	n := prepare(t)
	n.apply(t, store("app"))
	n.rolledOut(t, "app")
	n.startGateway(t)
	monitor := readPodMonitor(t)
	n.customMetrics(t, n.prometheus(t, monitor.scrapeConfig()))
	const path = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/%s/pods/*/retryproxy_requests_in_flight"
	engine.Await(t, "metric of the API", func() bool {
		out, err := n.try(t, "get", "--raw", fmt.Sprintf(path, n.name))
		return err == nil && strings.Count(out, `"retryproxy-gateway-`) == 2
	})
	c := n.client(t, "client")
	began := time.Now()
	c.start(t, "http://retryproxy-gateway."+n.name+".svc.cluster.local/?delay=3s", 250) // 750 in flight, 200 for each gateway
	replicas := ""
	engine.Await(t, "scaled gateway", func() bool {
		replicas = n.kubectl(t, "get", "deployment", "retryproxy-gateway", "-o", "jsonpath={.status.readyReplicas}")
		return replicas >= "4"
	})
	took := time.Since(began)
	t.Log(n.kubectl(t, "describe", "horizontalpodautoscaler", "retryproxy-gateway"))
	r := c.stop(t)
	fmt.Printf("autoscaler: 2 to %s gateways in %.0f s with 750 requests in flight; %d of %d failed %s\n", replicas, took.Seconds(), r.Failed, r.Sent, r.kinds())
	if r.Failed > 0 {
		t.Errorf("%d of %d requests failed: %s", r.Failed, r.Sent, r.kinds())
	}
}
