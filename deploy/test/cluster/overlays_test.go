package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// operator is the module that has the CRDs of PodMonitor and PrometheusRule.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.90.1"

// definitions applies the operator's CRDs until the test ends.
func definitions(t *testing.T) {
	t.Helper()
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(engine.Run(t, nil, "go", "mod", "download", "-json", operator)), &module); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		file := filepath.Join(module.Dir, "example/prometheus-operator-crd/monitoring.coreos.com_"+kind+".yaml")
		engine.Cleanup(t, func() {
			if out, err := (&namespace{"default"}).try(t, "delete", "--ignore-not-found", "-f", file); err != nil {
				t.Error(out)
			}
		})
		kubectl(t, "apply", "--server-side", "-f", file)
		kubectl(t, "wait", "--for=condition=Established", "--timeout=1m", "-f", file)
	}
}

// Every overlay is admitted as it is to a namespace that enforces the Pod Security Standard
// restricted, and what it runs gets ready. The webhook's has a test of its own.
func TestOverlaysGetReadyInARestrictedNamespace(t *testing.T) {
	n := prepare(t)
	definitions(t)
	u := n.user(t)
	// What the overlays call https://api.example.com is in the cluster here.
	n.apply(t, store("api"))
	for _, c := range []struct {
		overlay, ready, service string // ready is the Deployment
	}{
		{"inbound", "web", "web"},
		{"outbound", "web", ""},
		{"gateway", "retryproxy-gateway", "retryproxy-gateway"},
		{"monitoring/podmonitor", "", ""},
		{"monitoring/rules", "", ""},
	} {
		t.Run(c.overlay, func(t *testing.T) {
			path := "deploy/k8s/overlays/" + c.overlay
			file := filepath.Join(path, "retryproxy.env")
			if content, err := os.ReadFile(filepath.Join(u.directory, file)); err == nil && c.service != "web" {
				for line := range strings.Lines(string(content)) {
					if strings.HasPrefix(line, "RETRYPROXY_UPSTREAM=") {
						u.edit(t, file, line, "RETRYPROXY_UPSTREAM=http://api\n")
					}
				}
			}
			t.Log(u.run(t, "kubectl apply -k "+path))
			if c.ready != "" {
				n.ready(t, c.ready)
			}
			if c.service != "" {
				answers(t, "http://"+n.address(t, c.service)+"/")
			}
			u.run(t, "kubectl delete --wait=false -k "+path)
			if c.ready != "" {
				n.kubectl(t, "delete", "--ignore-not-found", "--grace-period=1", "pods", "-l", "app.kubernetes.io/name="+c.ready)
			}
		})
	}
	t.Run("job", func(t *testing.T) {
		u.edit(t, "deploy/k8s/overlays/job/retryproxy.env", "https://api.example.com", "http://api")
		u.run(t, "kubectl apply -k deploy/k8s/overlays/job")
		n.kubectl(t, "wait", "--for=condition=Complete", "--timeout=3m", "job/import")
	})
}

// The chart is installed by Helm with the page's commands.
func TestTheChartInstalls(t *testing.T) {
	n := prepare(t)
	tools(t)
	n.apply(t, store("app"))
	u := n.user(t)
	u.run(t, strings.ReplaceAll(helmGateway.commands(t), "app.default.svc.cluster.local", "app."+n.name+".svc.cluster.local"))
	n.ready(t, "gateway-retryproxy")
	answers(t, "http://"+n.address(t, "gateway-retryproxy")+"/")
	if out, err := u.try("helm upgrade gateway deploy/helm/retryproxy --reuse-values --set gateway.settings.MAX_RETRYS=5"); err == nil || !strings.Contains(out, "MAX_RETRYS") {
		t.Errorf("a misspelt setting: %v %s", err, out)
	}

	hook := webhookNamespace(t)
	u.run(t, createCertificate.commands(t)+helmWebhook.commands(t))
	hook.ready(t, "retryproxy-inject")
	n.injects(t, "shop", `retryproxy.io/inject: "true"`)
	u.run(t, "helm uninstall gateway; helm uninstall retryproxy --namespace retryproxy")
}
