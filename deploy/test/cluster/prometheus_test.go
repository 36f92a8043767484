package cluster

import (
	"encoding/json"
	"fmt"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// podMonitor is what Prometheus needs to know of one.
type podMonitor struct {
	Metadata struct{ Name string }
	Spec     struct {
		NamespaceSelector struct{ Any bool }
		Selector          map[string]any
		Endpoints         []struct {
			Port          string
			Path          string
			Interval      string
			ScrapeTimeout string `yaml:"scrapeTimeout"`
			FilterRunning bool   `yaml:"filterRunning"`
		} `yaml:"podMetricsEndpoints"`
	}
}

func readPodMonitor(t *testing.T) (m podMonitor) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(engine.Root(t), "deploy/k8s/overlays/monitoring/podmonitor/podmonitor.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Metadata struct{ Name string }
		Spec     struct {
			NamespaceSelector struct{ Any bool } `yaml:"namespaceSelector"`
			Selector          map[string]any     `yaml:"selector"`
			Endpoints         yaml.Node          `yaml:"podMetricsEndpoints"`
		}
	}
	if err := yaml.Unmarshal(content, &raw); err != nil {
		t.Fatal(err)
	}
	m.Metadata.Name, m.Spec.NamespaceSelector.Any, m.Spec.Selector = raw.Metadata.Name, raw.Spec.NamespaceSelector.Any, raw.Spec.Selector
	if err := raw.Spec.Endpoints.Decode(&m.Spec.Endpoints); err != nil {
		t.Fatal(err)
	}
	if !m.Spec.NamespaceSelector.Any || len(m.Spec.Selector) > 0 || len(m.Spec.Endpoints) == 0 {
		t.Fatalf("a PodMonitor that is not translated here: %+v", m)
	}
	return m
}

// scrapeConfig is the configuration that the operator makes of the PodMonitor: any Pod of any
// namespace, the port by its name, running Pods alone, and the same labels.
func (p *podMonitor) scrapeConfig() string {
	var b strings.Builder
	b.WriteString("global: {scrape_interval: 15s}\nscrape_configs:\n")
	for i, e := range p.Spec.Endpoints {
		running := ""
		if e.FilterRunning {
			running = "\n  - {source_labels: [__meta_kubernetes_pod_phase], regex: (Failed|Succeeded), action: drop}"
		}
		fmt.Fprintf(&b, `- job_name: podMonitor/%s/%d
  metrics_path: %s
  scrape_interval: %s
  scrape_timeout: %s
  kubernetes_sd_configs: [{role: pod}]
  relabel_configs:%s
  - {source_labels: [__meta_kubernetes_pod_container_port_name], regex: %s, action: keep}
  - {source_labels: [__meta_kubernetes_namespace], target_label: namespace}
  - {source_labels: [__meta_kubernetes_pod_container_name], target_label: container}
  - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
  - {target_label: job, replacement: %s}
  - {target_label: endpoint, replacement: %s}
`, p.Metadata.Name, i, e.Path, e.Interval, e.ScrapeTimeout, running, e.Port, p.Metadata.Name, e.Port)
	}
	return b.String()
}

// prometheus runs Prometheus in the namespace and returns where it answers.
func (n *namespace) prometheus(t *testing.T, config string) string {
	t.Helper()
	toolImage(t, prometheusImage, "prometheus")
	indented := strings.ReplaceAll(strings.TrimSpace(config), "\n", "\n    ")
	n.apply(t, fmt.Sprintf(`apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus}
data:
  prometheus.yml: |
    %[1]s
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[2]s-prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: %[2]s}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: prometheus}
spec:
  selector: {matchLabels: {app: prometheus}}
  template:
    metadata: {labels: {app: prometheus}}
    spec:
      serviceAccountName: prometheus
      containers:
      - name: prometheus
        image: %[3]s
        imagePullPolicy: Never
        args: [--config.file=/etc/prometheus/prometheus.yml, --storage.tsdb.path=/data]
        ports: [{name: web, containerPort: 9090}]
        readinessProbe: {failureThreshold: 60, httpGet: {path: /-/ready, port: web}, periodSeconds: 1}
        securityContext: %[4]s
        volumeMounts: [{name: config, mountPath: /etc/prometheus}, {name: data, mountPath: /data}]
      volumes: [{name: config, configMap: {name: prometheus}}, {name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Service
metadata: {name: prometheus}
spec: {selector: {app: prometheus}, ports: [{port: 9090}]}
`, indented, n.name, prometheusImage, restricted))
	engine.Cleanup(t, func() {
		if out, err := n.try(t, "delete", "clusterrolebinding", n.name+"-prometheus"); err != nil {
			t.Error(out)
		}
	})
	n.ready(t, "prometheus")
	url := "http://" + n.address(t, "prometheus") + ":9090"
	answers(t, url+"/-/ready")
	return url
}

// query returns the label sets of a query's result, with their values.
func query(t *testing.T, prometheus, expression string) (found []map[string]string) {
	t.Helper()
	status, body := engine.Get(prometheus + "/api/v1/query?query=" + neturl.QueryEscape(expression))
	var response struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &response); err != nil || status != 200 {
		t.Fatalf("%d %s: %v", status, body, err)
	}
	for _, r := range response.Data.Result {
		r.Metric["value"] = fmt.Sprint(r.Value[1])
		found = append(found, r.Metric)
	}
	return found
}

// Prometheus in the cluster finds every sidecar by what the PodMonitor selects, both of a Pod
// that has two, and nothing else.
func TestPrometheusFindsTheSidecars(t *testing.T) {
	n := prepare(t)
	n.apply(t, store("plain"))
	shop := strings.Replace(single("shop"), "        ports: [{name: http", "        env: [{name: API_URL, value: \"http://plain\"}]\n        ports: [{name: http", 1)
	n.apply(t, injected(t, shop, "--inbound", "--outbound-env", "API_URL"))
	n.apply(t, n.gateway(t, "http://plain"))
	n.rolledOut(t, "shop")
	n.ready(t, "retryproxy-gateway")
	monitor := readPodMonitor(t)
	prometheus := n.prometheus(t, monitor.scrapeConfig())
	began := time.Now()
	var found []map[string]string
	engine.Await(t, "four targets that are up", func() bool {
		found = query(t, prometheus, fmt.Sprintf(`up{namespace=%q} == 1`, n.name))
		return len(found) == 4 // two of the shop's Pod, two gateways
	})
	count := map[string]int{}
	for _, f := range found {
		count[f["container"]+" "+f["endpoint"]]++
	}
	if count["retryproxy-in rp-admin"] != 1 || count["retryproxy-out rp-out-admin"] != 1 || count["retryproxy rp-admin"] != 2 {
		t.Errorf("targets: %v", count)
	}
	fmt.Printf("Prometheus scraped 4 of 4 targets after %.0f s: %v\n", time.Since(began).Seconds(), count)
	if down := query(t, prometheus, fmt.Sprintf(`up{namespace=%q} == 0`, n.name)); len(down) > 0 {
		t.Errorf("targets that are down: %v", down)
	}
	answers(t, "http://"+n.address(t, "shop")+"/")
	engine.Await(t, "count of requests", func() bool {
		return len(query(t, prometheus, fmt.Sprintf(`retryproxy_requests_total{namespace=%q, container="retryproxy-in"} > 0`, n.name))) > 0
	})
}
