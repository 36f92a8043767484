package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// setting changes the ConfigMap as a person does.
func (n *namespace) setting(t *testing.T, configMap string, lines ...string) {
	t.Helper()
	n.apply(t, n.kubectl(t, "create", "configmap", configMap, "--from-literal=env="+strings.Join(lines, "\n")+"\n", "--dry-run=client", "-o", "yaml"))
}

func header(url, name string) string {
	response, err := http.Get(url) //nolint:gosec // a Service of the test
	if err != nil {
		return err.Error()
	}
	_ = response.Body.Close()
	return response.Header.Get(name)
}

// metric is the value of a line of /metrics, "" without one.
func metric(address, name string) string {
	_, body := engine.Get("http://" + address + "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// A change of the ConfigMap is taken up without a restart when the kubelet has written it into
// the Pod, which takes up to 90 s. A wrong one is refused: the log names the setting, a metric
// says so, and requests are served as before. A Pod that starts with it says in `kubectl
// describe` what is wrong.
func TestSettingsAreTakenUpLive(t *testing.T) {
	n := prepare(t)
	manifests := injected(t, store("shop"), "--config-map", "shop-settings")
	n.setting(t, "shop-settings", "RETRYPROXY_MAX_RETRIES=2")
	n.apply(t, manifests)
	n.rolledOut(t, "shop")
	url := "http://" + n.address(t, "shop") + "/"
	answers(t, url)
	name, address := n.pod(t, "app=shop")
	pod := "http://" + address + ":18080/"

	began := time.Now()
	n.setting(t, "shop-settings", "RETRYPROXY_MAX_RETRIES=2", "RETRYPROXY_RESPONSE_HEADERS_SET=X-Live: yes")
	engine.Await(t, "new setting", func() bool { return header(pod, "X-Live") == "yes" })
	fmt.Printf("a changed ConfigMap was in use after %.0f s\n", time.Since(began).Seconds())

	began = time.Now()
	n.setting(t, "shop-settings", "RETRYPROXY_MAX_RETRIES=many")
	engine.Await(t, "refusal", func() bool { return metric(address+":9797", "retryproxy_config_last_reload_successful") == "0" })
	fmt.Printf("a wrong ConfigMap was refused after %.0f s\n", time.Since(began).Seconds())
	if header(pod, "X-Live") != "yes" {
		t.Error("the settings of before are not in use")
	}
	logs := n.kubectl(t, "logs", name, "-c", "retryproxy-in", "--tail=5")
	if !strings.Contains(logs, "RETRYPROXY_MAX_RETRIES") || !strings.Contains(logs, "many") {
		t.Errorf("the log does not say what was wrong:\n%s", logs)
	}
	t.Log(logs)

	n.kubectl(t, "delete", "pod", name, "--force", "--grace-period=0")
	var described string
	engine.Await(t, "Pod that cannot start", func() bool {
		broken := n.kubectl(t, "get", "pods", "-l", "app=shop", "-o",
			`jsonpath={range .items[?(@.status.phase=="Pending")]}{.metadata.name}{"\n"}{end}`)
		if broken == "" {
			return false
		}
		described = n.kubectl(t, "describe", "pod", strings.Fields(broken)[0])
		return strings.Contains(described, "RETRYPROXY_MAX_RETRIES")
	})
	for line := range strings.Lines(described) {
		if strings.Contains(line, "RETRYPROXY_MAX_RETRIES") || strings.Contains(line, "Back-off") || strings.Contains(line, "Reason:") {
			t.Log(strings.TrimSpace(line))
		}
	}
	answers(t, url) // by the Pods that run
	n.setting(t, "shop-settings", "RETRYPROXY_MAX_RETRIES=2")
	n.rolledOut(t, "shop")
	n.allReady(t, "shop")
}
