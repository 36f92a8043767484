package cluster

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/retryproxy/retryproxy/deploy/test/engine"
)

// annotated is a Pod with annotations and a port with a name.
func annotated(name, annotations string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}, annotations: {%s}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: retryproxy-application:test
    imagePullPolicy: Never
    ports: [{name: http, containerPort: 3000}]
    securityContext: %s
`, name, name, annotations, restricted)
}

// reviews is how often the API server has asked the webhook, by its own count.
func reviews(t *testing.T) (n int) {
	t.Helper()
	metric := regexp.MustCompile(`(?m)^apiserver_admission_webhook_admission_duration_seconds_count\{name="inject\.retryproxy\.io",.*\} (\d+)$`)
	for _, found := range metric.FindAllStringSubmatch(kubectl(t, "get", "--raw", "/metrics"), -1) {
		count, _ := strconv.Atoi(found[1])
		n += count
	}
	return n
}

// webhookNamespace is the one that the page gives the webhook. It ends with the test.
func webhookNamespace(t *testing.T) *namespace {
	t.Helper()
	hook := &namespace{"retryproxy"}
	engine.Cleanup(t, func() {
		if t.Failed() {
			hook.tell(t)
		}
		for _, what := range [][]string{{"delete", "mutatingwebhookconfiguration", "retryproxy-inject"}, {"delete", "namespace", hook.name}} {
			if out, err := hook.try(t, append(what, "--ignore-not-found")...); err != nil {
				t.Error(out)
			}
		}
	})
	return hook
}

// injects waits for the API server to know the webhook and to reach it, which takes seconds: then
// the Pod gets a sidecar.
func (n *namespace) injects(t *testing.T, name, annotations string) {
	t.Helper()
	engine.Await(t, "injected Pod", func() bool {
		out, err := n.try(t, "apply", "-f", write(t, annotated(name, annotations)))
		if err != nil && strings.Contains(out, "failed calling webhook") {
			return false // kube-proxy does not know its Service yet
		}
		if err != nil {
			t.Fatal(out)
		}
		names := n.kubectl(t, "get", "pod", name, "-o", "jsonpath={.spec.initContainers[*].name}")
		if names != "retryproxy-in" {
			n.kubectl(t, "delete", "pod", name)
		}
		return names == "retryproxy-in"
	})
}

// The webhook as the page installs it: the API server trusts its certificate, asks only about
// Pods with the annotation, shows its refusals to who runs kubectl, and makes all other Pods
// while it is down.
func TestTheAPIServerAsksTheWebhook(t *testing.T) {
	n := prepare(t)
	hook := webhookNamespace(t)
	u := n.user(t)
	u.run(t, createCertificate.commands(t)+applyOverlay.commands(t))
	hook.ready(t, "retryproxy-inject")

	before := reviews(t)
	n.apply(t, annotated("other", "team: shop"))
	if asked := reviews(t) - before; asked != 0 {
		t.Errorf("asked %d times about a Pod without the annotation", asked)
	}
	n.injects(t, "shop", `retryproxy.io/inject: "true", linkerd.io/inject: enabled`)
	if asked := reviews(t) - before; asked < 1 {
		t.Error("not asked about a Pod with the annotation")
	}
	n.kubectl(t, "wait", "--for=condition=Ready", "--timeout=2m", "pod/shop")
	_, address := n.pod(t, "app=shop")
	answers(t, "http://"+address+":18080/")

	pod := strings.SplitN(strings.Replace(annotated("web", ""), "kind: Pod\n", "", 1), "\n", 2)[1]
	n.apply(t, "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  template:\n"+
		regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSpace(pod), "    ")+"\n")
	u.run(t, askForSidecar.commands(t))
	n.ready(t, "web")
	if names := n.kubectl(t, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].spec.initContainers[*].name}"); !strings.Contains(names, "retryproxy-in") {
		t.Errorf("a Deployment that asks has %q", names)
	}

	for _, c := range []struct{ annotations, want string }{
		{`retryproxy.io/inject: "true", retryproxy.io/inbuond-port: http`, "annotation retryproxy.io/inbuond-port: unknown; did you mean retryproxy.io/inbound-port?"},
		{`retryproxy.io/inject: "true", env.retryproxy.io/MAX_RETRYS: "3"`, "RETRYPROXY_MAX_RETRYS"},
		{`retryproxy.io/inject: "yes"`, `expected "true" or "false"`},
	} {
		out, err := n.try(t, "apply", "-f", write(t, annotated("wrong", c.annotations)))
		if err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, %s\nsays nothing of %s", c.annotations, err, out, c.want)
		}
		t.Log(out)
	}

	hook.kubectl(t, "scale", "deployment/retryproxy-inject", "--replicas=0")
	hook.kubectl(t, "wait", "--for=delete", "--timeout=2m", "pod", "-l", "app.kubernetes.io/name=retryproxy-inject")
	n.apply(t, annotated("while-down", "team: shop"))
	out, err := n.try(t, "apply", "-f", write(t, annotated("asks-while-down", `retryproxy.io/inject: "true"`)))
	if err == nil || !strings.Contains(out, "inject.retryproxy.io") {
		t.Errorf("a Pod that asks is made without a sidecar, or the reason is not told: %v, %s", err, out)
	}
	t.Log(out)
}
